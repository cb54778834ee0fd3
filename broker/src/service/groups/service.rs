//! The calls.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::offsets::{reset, snapshot};
use super::open_records::Budget;
use super::shown::{Detail, shown};
use super::snapshot::GroupSnapshot;
use super::{operate, retries, settings};
use crate::core::refusal::{CallError, GroupRefusal, Refusal};
use crate::core::request::ChangeRequest;
use crate::names::GroupName;
use crate::service::ack::with_nearest;
use crate::service::consume::{named_topics, start_at};
use crate::service::context::Context;
use crate::service::edge::Peer;
use crate::service::generated::group_admin_service_server::GroupAdminService;
use crate::service::lookup;
use crate::service::pages::{Page, token_after};
use crate::service::positions::Position;
use crate::service::status::{CallFailure, FieldViolation};

/// The service.
#[derive(Debug, Clone)]
pub(in crate::service) struct GroupAdmin {
    context: Arc<Context>,
}

impl GroupAdmin {
    pub(in crate::service) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    async fn now(&self, name: &GroupName) -> Result<v1::Group, CallFailure> {
        let group = snapshot(&self.context, name).await?;
        Ok(shown(&self.context, &group, Detail::Whole).await)
    }

    async fn create(&self, request: v1::CreateGroupRequest) -> Result<v1::Group, CallFailure> {
        let context = &self.context;
        let name = lookup::group_name("name", &request.name)?;
        let settings = settings::read(request.config.as_ref())?;
        if request.topics.is_empty() {
            return Err(FieldViolation::new("topics", "at least one is needed").into());
        }
        let topics = named_topics(context, &request.topics)?;
        let start = Position::read("start", request.start.as_ref(), Position::Earliest)?;
        let config = settings::shown(&settings);
        let change = ChangeRequest::CreateGroup {
            name: name.clone(),
            topics: topics.iter().map(|topic| topic.name.clone()).collect(),
            settings,
            start: start_at(start, &topics).await?,
        };
        match context.core().change(change, request.validate_only).await {
            Ok(_) if request.validate_only => Ok(v1::Group {
                name: name.to_string(),
                config: Some(config),
                status: v1::GroupStatus::NoMembers.into(),
                oldest_unprocessed_age: Some(prost_types::Duration::default()),
                topics: topics.iter().map(|topic| topic.name.to_string()).collect(),
                ..v1::Group::default()
            }),
            Ok(_) => self.now(&name).await,
            Err(error) if request.ok_if_exists && is_exists(&error) => self.now(&name).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn list(
        &self,
        request: v1::ListGroupsRequest,
    ) -> Result<v1::ListGroupsResponse, CallFailure> {
        let context = &self.context;
        let page = Page::read(request.page_size, &request.page_token)?;
        let topic = match request.topic.as_str() {
            "" => None,
            name => Some(lookup::topic(context.view(), "topic", name)?.id),
        };
        let (wanted, now) = (page.clone(), context.wall());
        let mut groups: Vec<GroupSnapshot> = context
            .core()
            .query(move |view| {
                let is_wanted = |group: &&crate::core::durable_groups::DurableGroup| {
                    wanted.is_next(group.name.as_str())
                        && topic.is_none_or(|topic| group.topics.contains_key(&topic))
                };
                let found = view
                    .state
                    .groups
                    .iter()
                    .filter(is_wanted)
                    .take(wanted.size + 1);
                let mut budget = Budget::new(now);
                found
                    .map(|group| GroupSnapshot::of(view, group, &mut budget))
                    .collect()
            })
            .await?;
        let has_more = groups.len() > page.size;
        groups.truncate(page.size);
        let last = groups.last().filter(|_| has_more);
        let next_page_token = last
            .map(|group| token_after(group.name.as_str()))
            .unwrap_or_default();
        let mut listed = Vec::with_capacity(groups.len());
        for group in &groups {
            listed.push(shown(context, group, Detail::Brief).await);
        }
        Ok(v1::ListGroupsResponse {
            groups: listed,
            next_page_token,
        })
    }

    async fn update(&self, request: v1::UpdateGroupRequest) -> Result<v1::Group, CallFailure> {
        let name = lookup::group_name("name", &request.name)?;
        let group = snapshot(&self.context, &name).await?;
        let (config, mask) = (request.config.as_ref(), request.update_mask.as_ref());
        let settings = settings::changed(&group.settings, config, mask)?;
        let config = Some(settings::shown(&settings));
        let change = ChangeRequest::UpdateGroup {
            name: name.clone(),
            settings,
        };
        self.context
            .core()
            .change(change, request.validate_only)
            .await?;
        let now = self.now(&name).await?;
        Ok(if request.validate_only {
            v1::Group { config, ..now }
        } else {
            now
        })
    }

    async fn delete(&self, request: v1::DeleteGroupRequest) -> Result<(), CallFailure> {
        let name = lookup::group_name("name", &request.name)?;
        let purge_dead_letters = request.purge_dead_letters;
        let change = ChangeRequest::DeleteGroup {
            name: name.clone(),
            purge_dead_letters,
        };
        let done = self
            .context
            .core()
            .change(change, request.validate_only)
            .await;
        with_nearest(&self.context, &name, done.map_err(Into::into)).await?;
        Ok(())
    }
}

fn is_exists(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Refused(Refusal::Group(GroupRefusal::Exists { .. }))
    )
}

#[tonic::async_trait]
impl GroupAdminService for GroupAdmin {
    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::CreateGroupResponse>, Status> {
        let group = Some(self.create(request.into_inner()).await?);
        Ok(Response::new(v1::CreateGroupResponse { group }))
    }

    async fn get_group(
        &self,
        request: Request<v1::GetGroupRequest>,
    ) -> Result<Response<v1::GetGroupResponse>, Status> {
        let name = lookup::group_name("name", &request.into_inner().name)?;
        let group = Some(self.now(&name).await?);
        Ok(Response::new(v1::GetGroupResponse { group }))
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn update_group(
        &self,
        request: Request<v1::UpdateGroupRequest>,
    ) -> Result<Response<v1::UpdateGroupResponse>, Status> {
        let group = Some(self.update(request.into_inner()).await?);
        Ok(Response::new(v1::UpdateGroupResponse { group }))
    }

    async fn reset_offsets(
        &self,
        request: Request<v1::ResetOffsetsRequest>,
    ) -> Result<Response<v1::ResetOffsetsResponse>, Status> {
        Ok(Response::new(
            reset(&self.context, request.into_inner()).await?,
        ))
    }

    async fn delete_group(
        &self,
        request: Request<v1::DeleteGroupRequest>,
    ) -> Result<Response<v1::DeleteGroupResponse>, Status> {
        self.delete(request.into_inner()).await?;
        Ok(Response::new(v1::DeleteGroupResponse {}))
    }

    async fn list_retries(
        &self,
        request: Request<v1::ListRetriesRequest>,
    ) -> Result<Response<v1::ListRetriesResponse>, Status> {
        Ok(Response::new(
            retries::list(&self.context, request.into_inner()).await?,
        ))
    }

    async fn retry_now(
        &self,
        request: Request<v1::RetryNowRequest>,
    ) -> Result<Response<v1::RetryNowResponse>, Status> {
        Ok(Response::new(
            operate::retry_now(&self.context, request.into_inner()).await?,
        ))
    }

    async fn settle_records(
        &self,
        request: Request<v1::SettleRecordsRequest>,
    ) -> Result<Response<v1::SettleRecordsResponse>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        Ok(Response::new(
            operate::settle_records(&self.context, request.into_inner(), peer).await?,
        ))
    }
}
