//! Topics and offsets.

use std::time::Duration;

use varvelog_proto::v1;

use super::{Admin, PAGE_SIZE, PAGES_MAX};
use crate::connection::answer;
use crate::error::CallError;
use crate::record::Position;

/// A topic to make.
///
/// ```
/// use std::time::Duration;
/// use varvelog_client::NewTopic;
///
/// let topic = NewTopic::new("orders").partitions(6).retention(Duration::from_secs(3600));
/// # let _ = topic;
/// ```
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    name: String,
    partitions: i32,
    config: v1::TopicConfig,
    validate_only: bool,
    ok_if_exists: bool,
}

impl NewTopic {
    /// 1 to 249 of `[A-Za-z0-9._-]`, not ending in `.retry` or `.dlq`. One partition unless said.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// How many partitions: 1 to 10,000.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        self
    }

    /// How long records are kept since their append; zero: for ever. Default 7 days.
    #[must_use]
    pub fn retention(mut self, age: Duration) -> Self {
        self.config.retention_age = Some(duration(age));
        self
    }

    /// All settings at once.
    #[must_use]
    pub fn config(mut self, config: v1::TopicConfig) -> Self {
        self.config = config;
        self
    }

    /// Only check.
    #[must_use]
    pub fn validate_only(mut self, validate_only: bool) -> Self {
        self.validate_only = validate_only;
        self
    }

    /// A topic of this name that is there is fine, whatever its settings.
    #[must_use]
    pub fn ok_if_exists(mut self, ok: bool) -> Self {
        self.ok_if_exists = ok;
        self
    }
}

impl From<NewTopic> for v1::CreateTopicRequest {
    fn from(new: NewTopic) -> Self {
        let topic = v1::Topic {
            name: new.name,
            partitions: new.partitions,
            config: Some(new.config),
            ..Default::default()
        };
        Self {
            topic: Some(topic),
            validate_only: new.validate_only,
            ok_if_exists: new.ok_if_exists,
        }
    }
}

/// Longer than protobuf can say becomes the longest it can; the broker refuses either.
pub(crate) fn duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(span).unwrap_or(prost_types::Duration {
        seconds: i64::MAX,
        nanos: 0,
    })
}

impl Admin {
    /// Make a topic: a [`NewTopic`] or the request itself.
    pub async fn create_topic(
        &self,
        topic: impl Into<v1::CreateTopicRequest>,
    ) -> Result<v1::Topic, CallError> {
        let request = self.connection.request(topic.into());
        let response = answer(self.connection.topics().create_topic(request).await)?;
        Ok(response.topic.unwrap_or_default())
    }

    /// One topic with its partitions.
    pub async fn topic(&self, name: impl Into<String>) -> Result<v1::Topic, CallError> {
        let request = self
            .connection
            .request(v1::GetTopicRequest { name: name.into() });
        let response = answer(self.connection.topics().get_topic(request).await)?;
        Ok(response.topic.unwrap_or_default())
    }

    /// All topics whose name begins so, page after page.
    pub async fn topics(
        &self,
        name_prefix: impl Into<String>,
        include_derived: bool,
    ) -> Result<Vec<v1::Topic>, CallError> {
        let mut page = v1::ListTopicsRequest {
            page_size: PAGE_SIZE,
            page_token: String::new(),
            name_prefix: name_prefix.into(),
            include_derived,
        };
        let mut topics = Vec::new();
        for _ in 0..PAGES_MAX {
            let response = self.topics_page(page.clone()).await?;
            topics.extend(response.topics);
            if response.next_page_token.is_empty() {
                break;
            }
            page.page_token = response.next_page_token;
        }
        Ok(topics)
    }

    /// One page of topics.
    pub async fn topics_page(
        &self,
        page: v1::ListTopicsRequest,
    ) -> Result<v1::ListTopicsResponse, CallError> {
        answer(
            self.connection
                .topics()
                .list_topics(self.connection.request(page))
                .await,
        )
    }

    /// Change a topic's settings.
    pub async fn update_topic(
        &self,
        update: v1::UpdateTopicRequest,
    ) -> Result<v1::Topic, CallError> {
        let request = self.connection.request(update);
        let response = answer(self.connection.topics().update_topic(request).await)?;
        Ok(response.topic.unwrap_or_default())
    }

    /// Let a topic have more partitions. Keys may go elsewhere from then on.
    pub async fn add_partitions(
        &self,
        add: v1::AddPartitionsRequest,
    ) -> Result<v1::Topic, CallError> {
        let request = self.connection.request(add);
        let response = answer(self.connection.topics().add_partitions(request).await)?;
        Ok(response.topic.unwrap_or_default())
    }

    /// Move a partition's log start up; answers where it is.
    pub async fn delete_records(&self, delete: v1::DeleteRecordsRequest) -> Result<i64, CallError> {
        let request = self.connection.request(delete);
        let response = answer(self.connection.topics().delete_records(request).await)?;
        Ok(response.earliest_offset)
    }

    /// Delete a topic with the retry and dead-letter topics of its groups.
    pub async fn delete_topic(&self, delete: v1::DeleteTopicRequest) -> Result<(), CallError> {
        let request = self.connection.request(delete);
        answer(self.connection.topics().delete_topic(request).await).map(drop)
    }

    /// Offsets by position or append time; no `partitions`: all of the topic.
    pub async fn list_offsets(
        &self,
        topic: impl Into<String>,
        partitions: &[u32],
        at: Position,
    ) -> Result<Vec<v1::PartitionOffset>, CallError> {
        let wire = |partition: &u32| i32::try_from(*partition).unwrap_or(i32::MAX);
        let request = self.connection.request(v1::ListOffsetsRequest {
            topic: topic.into(),
            partitions: partitions.iter().map(wire).collect(),
            at: Some(at.into()),
        });
        Ok(answer(self.connection.log().list_offsets(request).await)?.offsets)
    }

    /// Append through the easy door: one request, all or nothing. For delays, message ids and
    /// request ids; for throughput there is the [`Producer`](crate::Producer).
    pub async fn produce(
        &self,
        produce: v1::ProduceRequest,
    ) -> Result<v1::ProduceResponse, CallError> {
        answer(
            self.connection
                .log()
                .produce(self.connection.request(produce))
                .await,
        )
    }
}
