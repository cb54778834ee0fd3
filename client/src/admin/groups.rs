//! Groups: settings, positions, retries.

use varvelog_proto::v1;

use super::{Admin, PAGE_SIZE, PAGES_MAX};
use crate::connection::answer;
use crate::error::CallError;
use crate::record::Position;

/// Where a group's positions are moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// To a position.
    To(Position),
    /// So many records forward, or back if negative.
    By(i64),
}

impl Shift {
    /// A request that moves all partitions of a group; narrow it through its fields.
    pub fn request(self, group: impl Into<String>) -> v1::ResetOffsetsRequest {
        let (to, shift_by) = match self {
            Self::To(position) => (Some(position.into()), 0),
            Self::By(records) => (None, records),
        };
        v1::ResetOffsetsRequest {
            group: group.into(),
            to,
            shift_by,
            ..Default::default()
        }
    }
}

impl Admin {
    /// Make a group with its retry and dead-letter topics.
    pub async fn create_group(
        &self,
        create: v1::CreateGroupRequest,
    ) -> Result<v1::Group, CallError> {
        let request = self.connection.request(create);
        let response = answer(self.connection.group_admin().create_group(request).await)?;
        Ok(response.group.unwrap_or_default())
    }

    /// One group with members, lags and stalls.
    pub async fn group(&self, name: impl Into<String>) -> Result<v1::Group, CallError> {
        let request = self
            .connection
            .request(v1::GetGroupRequest { name: name.into() });
        let response = answer(self.connection.group_admin().get_group(request).await)?;
        Ok(response.group.unwrap_or_default())
    }

    /// All groups that read `topic` (empty: all groups), page after page.
    pub async fn groups(&self, topic: impl Into<String>) -> Result<Vec<v1::Group>, CallError> {
        let mut page = v1::ListGroupsRequest {
            page_size: PAGE_SIZE,
            page_token: String::new(),
            topic: topic.into(),
        };
        let mut groups = Vec::new();
        for _ in 0..PAGES_MAX {
            let response = self.groups_page(page.clone()).await?;
            groups.extend(response.groups);
            if response.next_page_token.is_empty() {
                break;
            }
            page.page_token = response.next_page_token;
        }
        Ok(groups)
    }

    /// One page of groups.
    pub async fn groups_page(
        &self,
        page: v1::ListGroupsRequest,
    ) -> Result<v1::ListGroupsResponse, CallError> {
        answer(
            self.connection
                .group_admin()
                .list_groups(self.connection.request(page))
                .await,
        )
    }

    /// Change a group's settings.
    pub async fn update_group(
        &self,
        update: v1::UpdateGroupRequest,
    ) -> Result<v1::Group, CallError> {
        let request = self.connection.request(update);
        let response = answer(self.connection.group_admin().update_group(request).await)?;
        Ok(response.group.unwrap_or_default())
    }

    /// Move a group's positions; [`Shift::request`] makes the usual requests.
    pub async fn reset_offsets(
        &self,
        reset: v1::ResetOffsetsRequest,
    ) -> Result<Vec<v1::OffsetChange>, CallError> {
        let request = self.connection.request(reset);
        Ok(answer(self.connection.group_admin().reset_offsets(request).await)?.changes)
    }

    /// Delete a group and its retry topics.
    pub async fn delete_group(&self, delete: v1::DeleteGroupRequest) -> Result<(), CallError> {
        let request = self.connection.request(delete);
        answer(self.connection.group_admin().delete_group(request).await).map(drop)
    }

    /// One page of what waits for its due time.
    pub async fn retries_page(
        &self,
        page: v1::ListRetriesRequest,
    ) -> Result<v1::ListRetriesResponse, CallError> {
        answer(
            self.connection
                .group_admin()
                .list_retries(self.connection.request(page))
                .await,
        )
    }

    /// Make waiting retries due at once; answers how many.
    pub async fn retry_now(&self, retry: v1::RetryNowRequest) -> Result<i64, CallError> {
        let request = self.connection.request(retry);
        Ok(answer(self.connection.group_admin().retry_now(request).await)?.matched)
    }

    /// Settle records by hand; answers how many.
    pub async fn settle_records(&self, settle: v1::SettleRecordsRequest) -> Result<i64, CallError> {
        let request = self.connection.request(settle);
        Ok(answer(self.connection.group_admin().settle_records(request).await)?.settled)
    }

    /// Set positions for a program that keeps its own loop over fetches.
    pub async fn commit_offsets(&self, commit: v1::CommitOffsetsRequest) -> Result<(), CallError> {
        let request = self.connection.request(commit);
        answer(self.connection.group().commit_offsets(request).await).map(drop)
    }

    /// The low watermark of each partition; an empty `topic`: all of the group's.
    pub async fn offsets(
        &self,
        group: impl Into<String>,
        topic: impl Into<String>,
    ) -> Result<Vec<v1::OffsetCommit>, CallError> {
        let request = self.connection.request(v1::GetOffsetsRequest {
            group: group.into(),
            topic: topic.into(),
        });
        Ok(answer(self.connection.group().get_offsets(request).await)?.offsets)
    }
}
