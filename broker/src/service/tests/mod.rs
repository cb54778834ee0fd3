//! The edge over a real socket, in front of a real broker.

mod abuse;
mod admin;
mod backpressure;
mod dead_letters;
mod drain;
mod failures;
mod group_admin;
mod groups;
mod log;
mod message_ids;
mod outputs;
mod reads;
mod replay_rules;
mod replays;
mod retries;
mod scaler;
mod sessions;
mod wire_level;

use std::collections::HashMap;
use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use varvelog_proto::v1;
use varvelog_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::topic_service_client::TopicServiceClient;

use crate::BrokerHandle;
use crate::config::{Config, Sources};

/// A broker in a folder of its own, and a connection to it.
pub(super) struct TestBroker {
    pub(super) handle: BrokerHandle,
    pub(super) channel: Channel,
    _dir: tempfile::TempDir,
}

impl TestBroker {
    pub(super) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With further settings.
    pub(super) async fn with(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data").to_str().unwrap().to_owned();
        let fixed = [
            ("data_dir", folder.as_str()),
            ("listen", "127.0.0.1:0"),
            ("http_listen", "127.0.0.1:0"),
            ("edges", "1"),
            ("wal.file_bytes", "1 MiB"),
            ("wal.sync", "never"),
        ];
        let flags = fixed.iter().chain(settings);
        let flags = flags
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let config = Config::load(&Sources {
            flags,
            ..Sources::default()
        })
        .unwrap();
        let handle = crate::start(config).await.unwrap();
        let channel = connect(&handle).await;
        Self {
            handle,
            channel,
            _dir: dir,
        }
    }

    pub(super) fn log(&self) -> LogServiceClient<Channel> {
        LogServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(super) fn groups(&self) -> GroupServiceClient<Channel> {
        GroupServiceClient::new(self.channel.clone())
    }

    pub(super) fn topics(&self) -> TopicServiceClient<Channel> {
        TopicServiceClient::new(self.channel.clone())
    }

    pub(super) fn group_admin(&self) -> GroupAdminServiceClient<Channel> {
        GroupAdminServiceClient::new(self.channel.clone())
    }

    pub(super) fn dead_letters(&self) -> DeadLetterServiceClient<Channel> {
        DeadLetterServiceClient::new(self.channel.clone())
    }

    pub(super) async fn topic(&self, name: &str, partitions: i32) -> v1::Topic {
        let topic = Some(v1::Topic {
            name: name.into(),
            partitions,
            ..v1::Topic::default()
        });
        let request = v1::CreateTopicRequest {
            topic,
            ..Default::default()
        };
        let made = self.topics().create_topic(request).await.unwrap();
        made.into_inner().topic.unwrap()
    }

    /// Produces texts to partition 0.
    pub(super) async fn produce(&self, topic: &str, values: &[&str]) -> v1::ProduceResponse {
        let records = values.iter().map(|value| record(value)).collect();
        let request = v1::ProduceRequest {
            topic: topic.into(),
            records,
            ..Default::default()
        };
        self.log().produce(request).await.unwrap().into_inner()
    }
}

pub(super) async fn connect(handle: &BrokerHandle) -> Channel {
    let address = format!("http://{}", handle.grpc_addr());
    Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(super) fn record(value: &str) -> v1::NewRecord {
    v1::NewRecord {
        value: Some(value.to_owned().into()),
        partition: Some(0),
        ..Default::default()
    }
}

pub(super) fn values(records: &[v1::Record]) -> Vec<String> {
    let text =
        |record: &v1::Record| String::from_utf8(record.value.as_ref().unwrap().to_vec()).unwrap();
    records.iter().map(text).collect()
}

/// Code, reason and metadata of a refusal.
pub(super) fn refused<T: std::fmt::Debug>(
    result: Result<T, Status>,
) -> (Code, String, HashMap<String, String>) {
    let status = result.unwrap_err();
    let info = status
        .get_error_details()
        .error_info()
        .cloned()
        .unwrap_or_else(|| {
            panic!("no details: {status:?}");
        });
    (status.code(), info.reason, info.metadata)
}

/// The reason of a refusal.
pub(super) fn reason<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
    refused(result).1
}

/// Fails the test when something does not come.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it must come soon")
}

pub(super) fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

pub(super) fn millis(ms: i32) -> prost_types::Duration {
    prost_types::Duration {
        seconds: 0,
        nanos: ms * 1_000_000,
    }
}
