//! A producer that outruns its group tenfold: how deep the group gets, at what rate the producer
//! settles, what memory it takes, and whether another topic feels it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinHandle;
use tonic::Status;
use varvelog_client::CallError;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::topic_service_client::TopicServiceClient;
use varvelog_proto::v1::{
    AckRequest, Admission, ConsumeRequest, CreateGroupRequest, CreateTopicRequest, GetGroupRequest,
    Group, GroupConfig, NewRecord, ProduceRequest, Topic,
};

use crate::drive::{self, Failure, Options, TOPIC};
use crate::process::Server;

const OTHER: &str = "other";
/// Records of one request.
const REQUEST: u64 = 50;
/// What the group does in a second, and what its producer offers.
const GROUP_RATE: u64 = 2_000;
const OFFERED_RATE: u64 = 10 * GROUP_RATE;
const LIMIT: u64 = 5_000;
/// Requests of the producer of the other topic in a second.
const OTHER_RATE: u64 = 100;
const ALONE: Duration = Duration::from_secs(5);
const PRESSED: Duration = Duration::from_secs(30);

/// What the producer did.
#[derive(Debug, Default)]
struct Tally {
    appended: AtomicU64,
    refused: AtomicU64,
    over: AtomicBool,
}

/// Prints the figures of one run.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let broker = drive::broker(options, "always", true)?;
    prepare(&broker.address).await?;
    let alone = other_topic(&broker.address, ALONE).await?;
    say_other("alone", &alone);
    let (tally, handled) = (Arc::new(Tally::default()), Arc::new(AtomicU64::new(0)));
    let consumer = tokio::spawn(consume(broker.address.clone(), Arc::clone(&handled)));
    let producer = tokio::spawn(produce(broker.address.clone(), Arc::clone(&tally)));
    let other = tokio::spawn(beside(broker.address.clone()));
    watch(&broker, &tally, &handled).await?;
    tally.over.store(true, Ordering::Relaxed);
    say_other("beside", &joined(other).await?);
    joined(producer).await?;
    drain(&broker.address).await?;
    consumer.abort();
    report(&tally, &handled)
}

async fn joined<T>(task: JoinHandle<Result<T, String>>) -> Result<T, Failure> {
    Ok(task.await??)
}

async fn prepare(address: &str) -> Result<(), Failure> {
    let mut topics = TopicServiceClient::new(drive::connect(address).await?);
    for name in [TOPIC, OTHER] {
        let topic = Topic {
            name: name.into(),
            partitions: 1,
            ..Topic::default()
        };
        let request = CreateTopicRequest {
            topic: Some(topic),
            ..CreateTopicRequest::default()
        };
        topics.create_topic(request).await?;
    }
    let admission = Admission {
        max_depth: i64::try_from(LIMIT)?,
        ..Admission::default()
    };
    let request = CreateGroupRequest {
        name: TOPIC.into(),
        topics: vec![TOPIC.into()],
        config: Some(GroupConfig {
            admission: Some(admission),
            ..GroupConfig::default()
        }),
        ..CreateGroupRequest::default()
    };
    let mut admin = GroupAdminServiceClient::new(drive::connect(address).await?);
    admin.create_group(request).await?;
    Ok(())
}

fn request(topic: &str, first: u64, records: u64) -> ProduceRequest {
    let record = |number: u64| NewRecord {
        value: Some(Bytes::from(format!("{number:0100}"))),
        partition: Some(0),
        ..NewRecord::default()
    };
    ProduceRequest {
        topic: topic.into(),
        records: (first..first + records).map(record).collect(),
        ..ProduceRequest::default()
    }
}

/// Waits for the moment at which `count` things are due at `rate` a second.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn pace(start: Instant, count: u64, rate: u64) {
    let due = Duration::from_micros(count * 1_000_000 / rate);
    let wait = due.saturating_sub(start.elapsed());
    tokio::time::sleep(wait).await;
}

/// Offers records at ten times the group's rate; what is refused waits as long as it is told.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn produce(address: String, tally: Arc<Tally>) -> Result<(), String> {
    let text = |error: Failure| error.to_string();
    let mut log = LogServiceClient::new(drive::connect(&address).await.map_err(text)?);
    let mut first = 0;
    let mut start = Instant::now();
    let mut paced = 0;
    while !tally.over.load(Ordering::Relaxed) {
        match log.produce(request(TOPIC, first, REQUEST)).await {
            Ok(_) => {
                first += REQUEST;
                paced += REQUEST;
                tally.appended.fetch_add(REQUEST, Ordering::Relaxed);
                pace(start, paced, OFFERED_RATE).await;
            }
            Err(status) => {
                let wait = wait_of(status)?;
                tally.refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(wait).await;
                // What was not offered meanwhile is not made up for.
                (start, paced) = (Instant::now(), 0);
            }
        }
    }
    Ok(())
}

fn wait_of(status: Status) -> Result<Duration, String> {
    let error = CallError::from(status);
    let wait = error.retry_after().filter(|_| error.is_backpressure());
    wait.ok_or_else(|| error.to_string())
}

/// Handles records at the group's rate, and counts each the first time it sees it.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn consume(address: String, handled: Arc<AtomicU64>) -> Result<(), String> {
    let text = |error: Failure| error.to_string();
    let mut groups = GroupServiceClient::new(drive::connect(&address).await.map_err(text)?);
    let ask = ConsumeRequest {
        group: TOPIC.into(),
        max_records: 100,
        ..ConsumeRequest::default()
    };
    let stream = groups.consume(ask).await.map_err(|it| it.to_string())?;
    let mut stream = stream.into_inner();
    let (mut seen, start) = (BTreeSet::new(), Instant::now());
    let mut idle = Duration::ZERO;
    loop {
        let waiting = Instant::now();
        let Some(response) = stream.message().await.map_err(|it| it.to_string())? else {
            return Err("the stream ended".into());
        };
        idle += waiting.elapsed();
        if response.ack_token.is_empty() {
            continue;
        }
        let fresh = response.records.iter().filter(|it| seen.insert(it.offset));
        let fresh = u64::try_from(fresh.count()).unwrap_or(0);
        let done = handled.fetch_add(fresh, Ordering::Relaxed) + fresh;
        pace(start + idle, done, GROUP_RATE).await;
        let ack = AckRequest {
            ack_token: response.ack_token,
            ..AckRequest::default()
        };
        groups.ack(ack).await.map_err(|it| it.to_string())?;
    }
}

/// Requests to another topic: how many, and how long each took.
#[derive(Debug)]
struct Other {
    took: Vec<Duration>,
    in_time: Duration,
}

async fn beside(address: String) -> Result<Other, String> {
    let measured = other_topic(&address, PRESSED).await;
    measured.map_err(|error| error.to_string())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn other_topic(address: &str, time: Duration) -> Result<Other, Failure> {
    let mut log = LogServiceClient::new(drive::connect(address).await?);
    let start = Instant::now();
    let mut took = Vec::new();
    while start.elapsed() < time {
        let sent = Instant::now();
        log.produce(request(OTHER, 0, 1)).await?;
        took.push(sent.elapsed());
        pace(start, u64::try_from(took.len())?, OTHER_RATE).await;
    }
    took.sort_unstable();
    let in_time = start.elapsed();
    Ok(Other { took, in_time })
}

#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn say_other(how: &str, other: &Other) {
    let at = |share: usize| {
        let index = other.took.len() * share / 100;
        let took = other.took.get(index).copied().unwrap_or_default();
        took.as_secs_f64() * 1e3
    };
    println!(
        "another topic, {how}: {:.0} requests/s, p50 {:.2} ms, p99 {:.2} ms",
        other.took.len() as f64 / other.in_time.as_secs_f64(),
        at(50),
        at(99),
    );
}

async fn group(address: &str) -> Result<Group, Failure> {
    let mut admin = GroupAdminServiceClient::new(drive::connect(address).await?);
    let name = TOPIC.into();
    let found = admin.get_group(GetGroupRequest { name }).await?;
    Ok(found.into_inner().group.unwrap_or_default())
}

/// Looks at the depth ten times a second, and says what went on every five.
#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn watch(broker: &Server, tally: &Tally, handled: &AtomicU64) -> Result<(), Failure> {
    const SAY_EACH: Duration = Duration::from_secs(5);
    let mut admin = GroupAdminServiceClient::new(drive::connect(&broker.address).await?);
    let start = Instant::now();
    let mut said = (Duration::ZERO, 0, 0);
    let mut deepest = 0;
    while start.elapsed() < PRESSED {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let name = TOPIC.into();
        let found = admin.get_group(GetGroupRequest { name }).await?;
        let depth = found.into_inner().group.unwrap_or_default().total_lag;
        deepest = deepest.max(depth);
        let passed = start.elapsed();
        if passed >= said.0 + SAY_EACH {
            let appended = tally.appended.load(Ordering::Relaxed);
            let done = handled.load(Ordering::Relaxed);
            let ms = u64::try_from(passed.saturating_sub(said.0).as_millis())?;
            println!(
                "after {:2} s: producer {:5} records/s, group {:5} records/s, depth {depth:5}, \
                 deepest {deepest:5}, {:6} refusals, {:6} KiB resident",
                passed.as_secs(),
                (appended - said.1) * 1_000 / ms,
                (done - said.2) * 1_000 / ms,
                tally.refused.load(Ordering::Relaxed),
                broker.resident_kib(),
            );
            said = (passed, appended, done);
        }
    }
    println!(
        "limit {LIMIT}, one request {REQUEST}, deepest {deepest}: {}",
        if deepest < i64::try_from(LIMIT + REQUEST)? {
            "within"
        } else {
            "BEYOND"
        }
    );
    Ok(())
}

async fn drain(address: &str) -> Result<(), Failure> {
    while group(address).await?.total_lag > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report of the program")]
fn report(tally: &Tally, handled: &AtomicU64) -> Result<(), Failure> {
    let appended = tally.appended.load(Ordering::Relaxed);
    let handled = handled.load(Ordering::Relaxed);
    println!("{appended} records appended, {handled} of them handled");
    if appended == handled {
        Ok(())
    } else {
        Err("records were lost".into())
    }
}
