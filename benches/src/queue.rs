//! Queues, measured: workers that receive and acknowledge, from 1 to 64 of them; what order costs;
//! a window full of holes; a million delays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use varvelog_proto::v1::consume_session_request::Message as Ask;
use varvelog_proto::v1::consume_session_response::Message as Answer;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::{
    self as v1, AckRequest, ConsumeRequest, ConsumeSessionRequest, CreateGroupRequest,
    FailureAction, GroupConfig, GroupMode, NewRecord, OnFailure, ProduceRequest, Record,
    RetryPolicy,
};
use varvelog_store::batch::{BatchBuilder, Codec};

use crate::drive::{self, Failure, Options, TOPIC};
use crate::process::{Server, own_cpu_seconds};

const PARTITIONS: u32 = 8;
const RECORDS: u64 = 200_000;
const RECORDS_PER_BATCH: u32 = 250;
const KEYS: u32 = 50;
const CREDIT: i32 = 4;

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    sync: &'static str,
    value_bytes: usize,
    workers: usize,
    /// Of one response.
    records_max: i32,
    on_failure: OnFailure,
    /// One record in ten fails at each delivery, and waits for 20 ms.
    fails: bool,
}

/// Prints a line for each number of workers, size and sync policy.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    for sync in ["always", "interval:100ms"] {
        for value_bytes in [100, 1000] {
            for workers in [1, 4, 16, 64] {
                let case = Case {
                    sync,
                    value_bytes,
                    workers,
                    records_max: 500,
                    on_failure: OnFailure::Overtake,
                    fails: false,
                };
                measure(options, case).await?;
            }
        }
    }
    Ok(())
}

/// What order costs: 50 keys and 16 workers, that fail and that do not.
pub(crate) async fn order(options: &Options) -> Result<(), Failure> {
    for fails in [false, true] {
        for (on_failure, records_max) in [
            (OnFailure::Overtake, 1),
            (OnFailure::Hold, 1),
            (OnFailure::Overtake, 50),
            (OnFailure::Hold, 50),
        ] {
            let case = Case {
                sync: "always",
                value_bytes: 100,
                workers: 16,
                records_max,
                on_failure,
                fails,
            };
            measure(options, case).await?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn measure(options: &Options, case: Case) -> Result<(), Failure> {
    let broker = drive::broker(options, case.sync, true)?;
    drive::create_topic(&broker.address, PARTITIONS).await?;
    create_group(&broker.address, case.on_failure).await?;
    let records = match (case.records_max, case.fails) {
        (1, _) => RECORDS,
        (_, true) => 2 * RECORDS,
        (_, false) => 5 * RECORDS,
    };
    let batch = keyed_batch(case.value_bytes)?;
    let batches = records / u64::from(RECORDS_PER_BATCH);
    drive::produce(&broker.address, &batch, batches, PARTITIONS).await?;
    let (start, own, theirs) = (Instant::now(), own_cpu_seconds(), broker.cpu_seconds());
    let (tell, mut told) = mpsc::channel(1024);
    let workers: Vec<_> = (0..case.workers)
        .map(|_| tokio::spawn(worker(broker.address.clone(), case, tell.clone())))
        .collect();
    drop(tell);
    let mut latencies = Vec::new();
    let mut done = 0;
    while done < records {
        let (count, latency): (u64, Duration) = told.recv().await.ok_or("all workers ended")?;
        done += count;
        latencies.push(latency);
    }
    let wall = start.elapsed().as_secs_f64();
    for worker in workers {
        worker.abort();
    }
    latencies.sort_unstable();
    let cpu = (own_cpu_seconds() - own, broker.cpu_seconds() - theirs);
    report(case, (records, wall), &latencies, cpu);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(case: Case, (records, wall): (u64, f64), latencies: &[Duration], cpu: (f64, f64)) {
    let at = |share: usize| {
        let index = (latencies.len() * share / 100).min(latencies.len().saturating_sub(1));
        latencies.get(index).copied().unwrap_or_default()
    };
    println!(
        "queue {:15} {:9} {:8} {:4} B {:2} workers, \
         {:3} a response: {:>8.0} records/s, receive to ack \
         p50 {:>6.2} ms p99 {:>6.2} ms, CPU here {:>3.0} %, server {:>3.0} %",
        case.sync,
        format!("{:?}", case.on_failure).to_lowercase(),
        if case.fails { "10% fail" } else { "" },
        case.value_bytes,
        case.workers,
        case.records_max,
        records as f64 / wall,
        at(50).as_secs_f64() * 1e3,
        at(99).as_secs_f64() * 1e3,
        100.0 * cpu.0 / wall,
        100.0 * cpu.1 / wall,
    );
}

fn keyed_batch(value_bytes: usize) -> Result<Bytes, Failure> {
    let mut builder = BatchBuilder::new(Codec::None, (value_bytes + 64) << 8);
    let value = vec![b'v'; value_bytes];
    for number in 0..RECORDS_PER_BATCH {
        let key = format!("key-{}", number % KEYS);
        builder.push(None, Some(key.as_bytes()), Some(&value), std::iter::empty())?;
    }
    Ok(builder.finish()?)
}

async fn create_group(address: &str, on_failure: OnFailure) -> Result<(), Failure> {
    let config = GroupConfig {
        mode: GroupMode::Queue.into(),
        on_failure: on_failure.into(),
        max_in_flight: 10_000,
        retry: Some(RetryPolicy {
            delays: Duration::from_millis(20).try_into().into_iter().collect(),
            max_deliveries: 100,
            ..RetryPolicy::default()
        }),
        ..GroupConfig::default()
    };
    let request = CreateGroupRequest {
        name: TOPIC.into(),
        topics: vec![TOPIC.into()],
        config: Some(config),
        ..CreateGroupRequest::default()
    };
    GroupAdminServiceClient::new(drive::connect(address).await?)
        .create_group(request)
        .await?;
    Ok(())
}

/// Receives and acknowledges until it is aborted; tells of every response, with the time from its
/// arrival to the answer to its ack.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn worker(
    address: String,
    case: Case,
    tell: mpsc::Sender<(u64, Duration)>,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let channel = drive::connect(&address).await.map_err(|it| failed(&it))?;
    let mut client = GroupServiceClient::new(channel);
    let (sender, requests) = mpsc::channel(64);
    let start = ConsumeRequest {
        group: TOPIC.into(),
        max_records: case.records_max,
        ..ConsumeRequest::default()
    };
    let ask = |message, sequence| ConsumeSessionRequest {
        message: Some(message),
        sequence,
    };
    let closed = |error: mpsc::error::SendError<_>| error.to_string();
    sender
        .send(ask(Ask::Start(start), 0))
        .await
        .map_err(closed)?;
    sender
        .send(ask(Ask::Credit(CREDIT), 0))
        .await
        .map_err(closed)?;
    let answers = client.consume_session(ReceiverStream::new(requests)).await;
    let mut answers = answers.map_err(|it| failed(&it))?.into_inner();
    let mut open: BTreeMap<i64, Instant> = BTreeMap::new();
    let mut sequence = 0;
    while let Some(answer) = answers.next().await {
        let answer = answer.map_err(|it| failed(&it))?;
        match answer.message {
            Some(Answer::Ack(settled)) => {
                if let Some(since) = open.remove(&answer.sequence) {
                    let done = u64::try_from(settled.done).unwrap_or(0);
                    let told = tell.send((done, since.elapsed())).await;
                    told.map_err(|it| it.to_string())?;
                }
            }
            Some(Answer::Response(response)) if !response.ack_token.is_empty() => {
                sequence += 1;
                open.insert(sequence, Instant::now());
                let ack = AckRequest {
                    ack_token: response.ack_token,
                    failures: failures(case, &response.records),
                    ..AckRequest::default()
                };
                let ack = ask(Ask::Ack(ack), sequence);
                sender.send(ack).await.map_err(closed)?;
                sender.send(ask(Ask::Credit(1), 0)).await.map_err(closed)?;
            }
            _ => {}
        }
    }
    Err("the session ended".into())
}

/// Of the records of a response, those that fail: by offset and attempt.
fn failures(case: Case, records: &[Record]) -> Vec<v1::Failure> {
    let fails = |record: &&Record| {
        let draw = record.offset.wrapping_mul(0x9E37_79B9) ^ i64::from(record.attempt) << 20;
        case.fails && (draw >> 16).rem_euclid(10) == 0
    };
    let failing = records.iter().filter(fails);
    let failure = |record: &Record| v1::Failure {
        offset: record.offset,
        action: FailureAction::Retry.into(),
        ..v1::Failure::default()
    };
    failing.map(failure).collect()
}

const DELAYED: u64 = 1_000_000;
const DELAYED_PER_REQUEST: u64 = 2_000;
/// Due in one second.
const DUE_PER_SECOND: u64 = 1_000;
const WATCHED: u64 = 20_000;
/// Until the first is due.
const FIRST_DUE: Duration = Duration::from_mins(4);

/// A million delayed records, a thousand of them due a second: memory, and how late they come.
#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) async fn delays(options: &Options) -> Result<(), Failure> {
    let broker = drive::broker(options, "always", true)?;
    drive::create_topic(&broker.address, PARTITIONS).await?;
    create_group(&broker.address, OnFailure::Overtake).await?;
    let before = broker.resident_kib();
    let start = Instant::now();
    produce_delayed(&broker, start).await?;
    println!(
        "{DELAYED} delayed records produced in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let (tell, mut told) = mpsc::channel(1024);
    let receiving = tokio::spawn(receive(broker.address.clone(), start, tell));
    let mut late = Vec::new();
    while late.len() < usize::try_from(WATCHED)? {
        late.push(told.recv().await.ok_or("the worker ended")?);
        if late.len() == 1 {
            let grown = broker.resident_kib().saturating_sub(before);
            println!("{grown} KiB more resident with all of them in the retry topics");
        }
    }
    receiving.abort();
    late.sort_unstable();
    let at = |share: usize| {
        late.get(late.len() * share / 1000)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{DUE_PER_SECOND} due a second: late by p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms",
        at(500).as_secs_f64() * 1e3,
        at(990).as_secs_f64() * 1e3,
        at(999).as_secs_f64() * 1e3,
    );
    Ok(())
}

/// When a record is due, after the beginning.
fn due_of(number: u64) -> Duration {
    FIRST_DUE + Duration::from_micros(number * 1_000_000 / DUE_PER_SECOND)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn produce_delayed(broker: &Server, start: Instant) -> Result<(), Failure> {
    let mut client = LogServiceClient::new(drive::connect(&broker.address).await?);
    for first in (0..DELAYED).step_by(usize::try_from(DELAYED_PER_REQUEST)?) {
        let records = (first..first + DELAYED_PER_REQUEST).map(|number| {
            let delay = due_of(number).saturating_sub(start.elapsed());
            NewRecord {
                value: Some(number.to_string().into_bytes().into()),
                partition: Some(i32::try_from(number % u64::from(PARTITIONS)).unwrap_or(0)),
                delay: delay.try_into().ok(),
                ..NewRecord::default()
            }
        });
        let request = ProduceRequest {
            topic: TOPIC.into(),
            records: records.collect(),
            ..ProduceRequest::default()
        };
        client.produce(request).await?;
    }
    Ok(())
}

/// Receives, and tells how late each record came.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn receive(
    address: String,
    start: Instant,
    tell: mpsc::Sender<Duration>,
) -> Result<(), String> {
    let channel = drive::connect(&address)
        .await
        .map_err(|it| it.to_string())?;
    let mut client = GroupServiceClient::new(channel);
    let request = ConsumeRequest {
        group: TOPIC.into(),
        max_unacked_responses: 100,
        ..ConsumeRequest::default()
    };
    let stream = client.clone().consume(request).await;
    let mut stream = stream.map_err(|it| it.to_string())?.into_inner();
    // Acks go beside: what arrives meanwhile is not late because of this program.
    let (settle, mut settled) = mpsc::channel::<Bytes>(1024);
    let acks = async move {
        while let Some(ack_token) = settled.recv().await {
            let ack = AckRequest {
                ack_token,
                ..AckRequest::default()
            };
            client.ack(ack).await.map_err(|it| it.to_string())?;
        }
        Ok(())
    };
    let reading = async move {
        while let Some(response) = stream.message().await.map_err(|it| it.to_string())? {
            let now = start.elapsed();
            for record in &response.records {
                let value = record.value.as_deref().unwrap_or_default();
                let number = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let due = due_of(number.unwrap_or(0));
                let told = tell.send(now.saturating_sub(due)).await;
                told.map_err(|it| it.to_string())?;
            }
            if !response.ack_token.is_empty() {
                let told = settle.send(response.ack_token).await;
                told.map_err(|it| it.to_string())?;
            }
        }
        Err("the stream ended".into())
    };
    tokio::try_join!(acks, reading).map(|((), ())| ())
}
