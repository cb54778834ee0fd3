//! Workers made of nothing but generated stubs, so that a test decides about every record, and a
//! worker can die like a process does: its connection breaks, and nothing is said.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use varvelog_client::proto::{
    AckRequest, AckResponse, ConsumeRequest, ConsumeResponse, Failure, FailureAction, FetchRequest,
    GetGroupRequest, Group, Record, group_admin_service_client::GroupAdminServiceClient,
    group_service_client::GroupServiceClient, log_service_client::LogServiceClient,
};

/// What a handler makes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Handled {
    /// Processed.
    Done,
    /// Failed, with this code, and may go better.
    Transient(&'static str),
    /// Failed for good, with this code.
    Permanent(&'static str),
    /// The worker dies.
    Death,
}

/// A handler.
pub(super) type Handler = Arc<dyn Fn(&Seen) -> Handled + Send + Sync>;
/// Is told of every record when what was made of it is settled.
pub(super) type Witness = Arc<dyn Fn(&Seen, &Handled) + Send + Sync>;

/// A record as a worker sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) attempt: i32,
    pub(super) key: String,
    pub(super) value: String,
}

/// A worker that runs until its task is aborted, which breaks its connection.
pub(super) struct Worker {
    task: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(
        server: &str,
        request: ConsumeRequest,
        (handler, witness): (Handler, Witness),
    ) -> Self {
        let server = server.to_owned();
        let task = tokio::spawn(async move {
            loop {
                // A connection of its own each time: a death is seen as a broken connection.
                drop(work(&server, &request, &handler, &witness).await);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { task }
    }

    pub(super) fn die(self) {
        self.task.abort();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Works until the connection breaks, or the worker dies.
async fn work(
    server: &str,
    request: &ConsumeRequest,
    handler: &Handler,
    witness: &Witness,
) -> Result<(), tonic::Status> {
    let channel = connect(server).await?;
    let mut groups = GroupServiceClient::new(channel);
    let mut stream = groups.consume(request.clone()).await?.into_inner();
    while let Some(response) = stream.message().await? {
        if response.records.is_empty() {
            continue;
        }
        let Some(outcomes) = handle(&response, handler) else {
            return Ok(());
        };
        let ack = AckRequest {
            ack_token: response.ack_token.clone(),
            failures: failures(&outcomes),
            ..AckRequest::default()
        };
        let answer = groups.ack(ack).await?.into_inner();
        for (seen, handled) in &outcomes {
            if !has_conflict(&answer, seen) {
                witness(seen, handled);
            }
        }
    }
    Ok(())
}

/// What is made of each record of a response; none if one of them is deadly.
fn handle(response: &ConsumeResponse, handler: &Handler) -> Option<Vec<(Seen, Handled)>> {
    let mut all = Vec::new();
    for record in &response.records {
        let seen = Seen {
            partition: response.partition,
            offset: record.offset,
            attempt: record.attempt,
            key: text(record.key.as_deref()),
            value: text(record.value.as_deref()),
        };
        match handler(&seen) {
            Handled::Death => return None,
            outcome => all.push((seen, outcome)),
        }
    }
    Some(all)
}

fn failures(handled: &[(Seen, Handled)]) -> Vec<Failure> {
    let failure = |(seen, handled): &(Seen, Handled)| {
        let (action, code) = match handled {
            Handled::Done | Handled::Death => return None,
            Handled::Transient(code) => (FailureAction::Retry, code),
            Handled::Permanent(code) => (FailureAction::DeadLetter, code),
        };
        Some(Failure {
            offset: seen.offset,
            action: action.into(),
            error_code: (*code).to_owned(),
            error_message: format!("record {} at attempt {}", seen.value, seen.attempt),
            error_stack: "at handle (worker.rs:12)\nat main (worker.rs:3)".to_owned(),
            retry_after: None,
        })
    };
    handled.iter().filter_map(failure).collect()
}

fn has_conflict(answer: &AckResponse, seen: &Seen) -> bool {
    answer.conflicts.iter().any(|it| it.offset == seen.offset)
}

pub(crate) async fn connect(server: &str) -> Result<Channel, tonic::Status> {
    let endpoint = Endpoint::from_shared(format!("http://{server}"))
        .map_err(|error| tonic::Status::internal(error.to_string()))?;
    let endpoint = endpoint.connect_timeout(Duration::from_secs(5));
    let connected = endpoint.connect().await;
    connected.map_err(|error| tonic::Status::unavailable(error.to_string()))
}

pub(crate) fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// A header as text.
pub(crate) fn header(record: &Record, name: &str) -> Option<String> {
    let value = record.headers.get(name)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// All records of a topic.
pub(crate) async fn read_topic(server: &str, topic: &str, partitions: i32) -> Vec<Record> {
    let channel = connect(server).await.expect("the broker takes connections");
    let mut log = LogServiceClient::new(channel);
    let mut all = Vec::new();
    for partition in 0..partitions {
        let mut offset = 0;
        loop {
            let fetch = FetchRequest {
                topic: topic.into(),
                partition,
                offset,
                max_records: 1_000,
                ..FetchRequest::default()
            };
            let fetched = log
                .fetch(fetch)
                .await
                .expect("the topic can be read")
                .into_inner();
            if fetched.records.is_empty() {
                break;
            }
            offset = fetched.next_offset;
            all.extend(fetched.records);
        }
    }
    all
}

/// A group as operators see it.
pub(crate) async fn describe(server: &str, group: &str) -> Group {
    let channel = connect(server).await.expect("the broker takes connections");
    let request = GetGroupRequest {
        name: group.to_owned(),
    };
    let mut groups = GroupAdminServiceClient::new(channel);
    let found = groups.get_group(request).await.expect("the group is there");
    found.into_inner().group.expect("an answer has a group")
}

/// Waits until a group has nothing left to do.
pub(crate) async fn caught_up(server: &str, group: &str, patience: Duration) -> Group {
    let end = tokio::time::Instant::now() + patience;
    loop {
        let found = describe(server, group).await;
        // Of the oldest record not done, with those that wait for a retry or are at work as one.
        let age = found.end_to_end_age.unwrap_or_default();
        if found.total_lag == 0 && age == prost_types::Duration::default() {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "{group} still has {} records and {} retries: {found:?}",
            found.total_lag,
            found.retries_scheduled
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
