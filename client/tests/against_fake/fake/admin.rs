//! What the fake tells an administrator: a group's settings.

use tonic::{Request, Response};
use varvelog_client::proto as v1;

use super::Fake;
use super::services::{Answer, not_built};

#[tonic::async_trait]
impl v1::group_admin_service_server::GroupAdminService for Fake {
    async fn get_group(
        &self,
        request: Request<v1::GetGroupRequest>,
    ) -> Answer<v1::GetGroupResponse> {
        let group = v1::Group {
            name: request.into_inner().name,
            config: Some(self.state().groups.config.clone()),
            ..Default::default()
        };
        Ok(Response::new(v1::GetGroupResponse { group: Some(group) }))
    }

    async fn create_group(
        &self,
        _: Request<v1::CreateGroupRequest>,
    ) -> Answer<v1::CreateGroupResponse> {
        not_built()
    }

    async fn list_groups(
        &self,
        _: Request<v1::ListGroupsRequest>,
    ) -> Answer<v1::ListGroupsResponse> {
        not_built()
    }

    async fn update_group(
        &self,
        _: Request<v1::UpdateGroupRequest>,
    ) -> Answer<v1::UpdateGroupResponse> {
        not_built()
    }

    async fn reset_offsets(
        &self,
        _: Request<v1::ResetOffsetsRequest>,
    ) -> Answer<v1::ResetOffsetsResponse> {
        not_built()
    }

    async fn delete_group(
        &self,
        _: Request<v1::DeleteGroupRequest>,
    ) -> Answer<v1::DeleteGroupResponse> {
        not_built()
    }

    async fn list_retries(
        &self,
        _: Request<v1::ListRetriesRequest>,
    ) -> Answer<v1::ListRetriesResponse> {
        not_built()
    }

    async fn retry_now(&self, _: Request<v1::RetryNowRequest>) -> Answer<v1::RetryNowResponse> {
        not_built()
    }

    async fn settle_records(
        &self,
        _: Request<v1::SettleRecordsRequest>,
    ) -> Answer<v1::SettleRecordsResponse> {
        not_built()
    }
}
