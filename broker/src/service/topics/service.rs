//! The calls.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::{settings, shown};
use crate::core::refusal::TopicRefusal;
use crate::core::request::{ChangeDone, ChangeRequest};
use crate::names::TopicName;
use crate::service::context::Context;
use crate::service::generated::topic_service_server::TopicService;
use crate::service::pages::{Page, token_after};
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::{checks, lookup};
use crate::view::TopicView;

const PARTITIONS: (u32, u32) = (1, 10_000);

/// The service.
#[derive(Debug, Clone)]
pub(in crate::service) struct Topics {
    context: Arc<Context>,
}

impl Topics {
    pub(in crate::service) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn record_bytes_max(&self) -> u32 {
        self.context.config().limits.record_bytes_max()
    }

    /// The topic after a change that was answered.
    async fn now(&self, name: &TopicName) -> Result<v1::Topic, CallFailure> {
        let topic = lookup::topic(self.context.view(), "name", name.as_str())?;
        shown::whole(&topic).await
    }

    async fn create(&self, request: v1::CreateTopicRequest) -> Result<v1::Topic, CallFailure> {
        let wanted = request.topic.unwrap_or_default();
        let name = own_name("topic.name", &wanted.name)?;
        let partitions = checks::count("topic.partitions", wanted.partitions, PARTITIONS)?;
        let settings = settings::read(wanted.config.as_ref(), self.record_bytes_max())?;
        let shown_config = settings::shown(&settings);
        let change = ChangeRequest::CreateTopic {
            name: name.clone(),
            partitions,
            settings,
        };
        match self
            .context
            .core()
            .change(change, request.validate_only)
            .await
        {
            Ok(_) if request.validate_only => Ok(v1::Topic {
                name: name.to_string(),
                partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
                config: Some(shown_config),
                ..v1::Topic::default()
            }),
            Ok(_) => self.now(&name).await,
            Err(error) => match CallFailure::from(error) {
                failure if request.ok_if_exists && is_exists(&failure) => self.now(&name).await,
                failure => Err(failure),
            },
        }
    }

    fn list(&self, request: &v1::ListTopicsRequest) -> Result<v1::ListTopicsResponse, CallFailure> {
        let page = Page::read(request.page_size, &request.page_token)?;
        let catalog = self.context.view().catalog();
        let is_wanted = |topic: &&Arc<TopicView>| {
            (request.include_derived || topic.derived.is_none())
                && topic.name.as_str().starts_with(&request.name_prefix)
                && page.is_next(topic.name.as_str())
        };
        let mut found = catalog.by_name.values().filter(is_wanted);
        let topics: Vec<v1::Topic> = found
            .by_ref()
            .take(page.size)
            .map(|topic| shown::brief(topic))
            .collect();
        let last = topics.last().filter(|_| found.next().is_some());
        let next_page_token = last
            .map(|topic| token_after(&topic.name))
            .unwrap_or_default();
        Ok(v1::ListTopicsResponse {
            topics,
            next_page_token,
        })
    }

    async fn update(&self, request: v1::UpdateTopicRequest) -> Result<v1::Topic, CallFailure> {
        let wanted = request.topic.unwrap_or_default();
        let topic = lookup::own_topic(self.context.view(), "topic.name", &wanted.name)?;
        let settings = settings::changed(
            &topic.settings,
            wanted.config.as_ref(),
            request.update_mask.as_ref(),
            self.record_bytes_max(),
        )?;
        let config = Some(settings::shown(&settings));
        let change = ChangeRequest::UpdateTopic {
            name: topic.name.clone(),
            settings,
        };
        self.context
            .core()
            .change(change, request.validate_only)
            .await?;
        let now = self.now(&topic.name).await?;
        Ok(if request.validate_only {
            v1::Topic { config, ..now }
        } else {
            now
        })
    }

    async fn grow(&self, request: v1::AddPartitionsRequest) -> Result<v1::Topic, CallFailure> {
        let topic = lookup::own_topic(self.context.view(), "name", &request.name)?;
        let total = match u32::try_from(request.total) {
            Ok(total) if (1..=PARTITIONS.1).contains(&total) => total,
            Ok(_) | Err(_) => {
                let limit = format!("1 to {}", PARTITIONS.1);
                let what = format!("must be {limit}");
                return Err(FieldViolation::bound("total", limit, request.total, what).into());
            }
        };
        let change = ChangeRequest::AddPartitions {
            name: topic.name.clone(),
            total,
        };
        self.context
            .core()
            .change(change, request.validate_only)
            .await?;
        let now = self.now(&topic.name).await?;
        Ok(if request.validate_only {
            v1::Topic {
                partitions: request.total,
                ..now
            }
        } else {
            now
        })
    }

    async fn delete_records(
        &self,
        request: v1::DeleteRecordsRequest,
    ) -> Result<v1::DeleteRecordsResponse, CallFailure> {
        let topic = lookup::own_topic(self.context.view(), "name", &request.name)?;
        let partition = lookup::partition(&topic, "partition", request.partition)?
            .id
            .partition;
        let before = checks::offset("before_offset", request.before_offset)?;
        let name = topic.name.clone();
        let change = ChangeRequest::DeleteRecords {
            name,
            partition,
            before,
        };
        let done = self
            .context
            .core()
            .change(change, request.validate_only)
            .await?;
        let ChangeDone::LogStart(start) = done else {
            unreachable!("DeleteRecords was answered by {done:?}")
        };
        Ok(v1::DeleteRecordsResponse {
            earliest_offset: start.as_i64(),
        })
    }

    async fn delete(&self, request: v1::DeleteTopicRequest) -> Result<(), CallFailure> {
        let topic = lookup::own_topic(self.context.view(), "name", &request.name)?;
        let change = ChangeRequest::DeleteTopic {
            name: topic.name.clone(),
            force: request.force,
        };
        self.context
            .core()
            .change(change, request.validate_only)
            .await?;
        Ok(())
    }
}

/// A name that a user may give a topic.
fn own_name(field: &str, name: &str) -> Result<TopicName, CallFailure> {
    let name = lookup::topic_name(field, name)?;
    if name.is_derived() {
        let (topic, group) = (name.to_string(), String::new());
        return Err(TopicRefusal::Derived { topic, group }.into());
    }
    Ok(name)
}

fn is_exists(failure: &CallFailure) -> bool {
    use crate::core::refusal::{CallError, Refusal};
    matches!(
        failure,
        CallFailure::Core(CallError::Refused(Refusal::Topic(
            TopicRefusal::Exists { .. }
        )))
    )
}

#[tonic::async_trait]
impl TopicService for Topics {
    async fn create_topic(
        &self,
        request: Request<v1::CreateTopicRequest>,
    ) -> Result<Response<v1::CreateTopicResponse>, Status> {
        let topic = Some(self.create(request.into_inner()).await?);
        Ok(Response::new(v1::CreateTopicResponse { topic }))
    }

    async fn get_topic(
        &self,
        request: Request<v1::GetTopicRequest>,
    ) -> Result<Response<v1::GetTopicResponse>, Status> {
        let found = lookup::topic(self.context.view(), "name", &request.into_inner().name)?;
        let topic = Some(shown::whole(&found).await?);
        Ok(Response::new(v1::GetTopicResponse { topic }))
    }

    async fn list_topics(
        &self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Result<Response<v1::ListTopicsResponse>, Status> {
        Ok(Response::new(self.list(&request.into_inner())?))
    }

    async fn update_topic(
        &self,
        request: Request<v1::UpdateTopicRequest>,
    ) -> Result<Response<v1::UpdateTopicResponse>, Status> {
        let topic = Some(self.update(request.into_inner()).await?);
        Ok(Response::new(v1::UpdateTopicResponse { topic }))
    }

    async fn add_partitions(
        &self,
        request: Request<v1::AddPartitionsRequest>,
    ) -> Result<Response<v1::AddPartitionsResponse>, Status> {
        let topic = Some(self.grow(request.into_inner()).await?);
        Ok(Response::new(v1::AddPartitionsResponse { topic }))
    }

    async fn delete_records(
        &self,
        request: Request<v1::DeleteRecordsRequest>,
    ) -> Result<Response<v1::DeleteRecordsResponse>, Status> {
        Ok(Response::new(
            Self::delete_records(self, request.into_inner()).await?,
        ))
    }

    async fn delete_topic(
        &self,
        request: Request<v1::DeleteTopicRequest>,
    ) -> Result<Response<v1::DeleteTopicResponse>, Status> {
        self.delete(request.into_inner()).await?;
        Ok(Response::new(v1::DeleteTopicResponse {}))
    }
}
