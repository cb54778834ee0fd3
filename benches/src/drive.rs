//! The load: one producer stream with eight batches in flight, one consumer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use varvelog_proto::v1::consume_session_request::Message as Ask;
use varvelog_proto::v1::consume_session_response::Message as Answer;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::topic_service_client::TopicServiceClient;
use varvelog_proto::v1::{
    AckRequest, ConsumeRequest, ConsumeSessionRequest, CreateTopicRequest, PartitionBatch,
    ProduceRequest, ProduceStreamRequest, TailRequest, Topic, produce_stream_response::Outcome,
};
use varvelog_store::batch::{BatchBuilder, Codec};

use crate::process::{Server, own_cpu_seconds};

/// What to run.
pub(crate) struct Options {
    pub(crate) binary: PathBuf,
    pub(crate) mib: u64,
    pub(crate) rounds: u32,
    pub(crate) dir: PathBuf,
}

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The topic of all measurements.
pub(crate) const TOPIC: &str = "load";
const RECORDS_PER_BATCH: u32 = 1000;
const IN_FLIGHT: u64 = 8;
const REQUESTS_MAX: usize = 8;
const CREDIT: i32 = 8;

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let batch = batch(RECORDS_PER_BATCH)?;
    let batches = (options.mib << 20) / batch.len() as u64;
    for round in 1..=options.rounds {
        let floor = floor_server(options)?;
        let write = measure(&floor, produce(&floor.address, &batch, batches, 1)).await?;
        report(round, "floor produce", &write, batches, &batch);
        let read = measure(&floor, tail(&floor.address)).await?;
        report(round, "floor read", &read, batches, &batch);
        drop(floor);
        for sync in ["always", "interval:100ms"] {
            let broker = broker(options, sync, true)?;
            create_topic(&broker.address, 1).await?;
            let write = measure(&broker, produce(&broker.address, &batch, batches, 1)).await?;
            report(round, &format!("produce {sync}"), &write, batches, &batch);
            let read = measure(&broker, consume(&broker.address, batches)).await?;
            report(round, &format!("consume {sync}"), &read, batches, &batch);
        }
    }
    Ok(())
}

/// Seconds of wall time and of CPU, here and in the server.
struct Cost {
    wall: f64,
    own: f64,
    server: f64,
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn measure(
    server: &Server,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<Cost, Failure> {
    let (start, own, theirs) = (Instant::now(), own_cpu_seconds(), server.cpu_seconds());
    work.await?;
    Ok(Cost {
        wall: start.elapsed().as_secs_f64(),
        own: own_cpu_seconds() - own,
        server: server.cpu_seconds() - theirs,
    })
}

#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(round: u32, what: &str, cost: &Cost, batches: u64, batch: &Bytes) {
    let megabytes = (batches * batch.len() as u64) as f64 / 1e6;
    let records = (batches * u64::from(RECORDS_PER_BATCH)) as f64;
    println!(
        "round {round}  {what:24} {:>10.0} records/s  {:>7.0} MB/s  \
         CPU here {:>4.0} %, server {:>4.0} %",
        records / cost.wall,
        megabytes / cost.wall,
        100.0 * cost.own / cost.wall,
        100.0 * cost.server / cost.wall,
    );
}

/// A batch of records of 1 KiB.
pub(crate) fn batch(records: u32) -> Result<Bytes, Failure> {
    let mut builder = BatchBuilder::new(Codec::None, 1100 * records as usize);
    let value = vec![b'v'; 1000];
    for number in 0..records {
        let key = format!("key-{number:016}");
        builder.push(None, Some(key.as_bytes()), Some(&value), std::iter::empty())?;
    }
    Ok(builder.finish()?)
}

fn floor_server(options: &Options) -> Result<Server, Failure> {
    Server::start(
        Command::new(std::env::current_exe()?)
            .arg("floor-server")
            .arg(&options.dir),
    )
}

/// Starts a broker, on an empty folder if `fresh`.
pub(crate) fn broker(options: &Options, sync: &str, fresh: bool) -> Result<Server, Failure> {
    let data = options.dir.join("varvelog-load-data");
    if fresh {
        remove(&data)?;
    }
    Server::start(
        Command::new(&options.binary)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--http-listen",
                "127.0.0.1:0",
            ])
            .arg("--data-dir")
            .arg(&data)
            .env("VARVELOG__WAL__SYNC", sync),
    )
}

fn remove(data: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(data) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) async fn connect(address: &str) -> Result<Channel, Failure> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20)
        .tcp_nodelay(true);
    Ok(endpoint.connect().await?)
}

pub(crate) async fn create_topic(address: &str, partitions: u32) -> Result<(), Failure> {
    let topic = Topic {
        name: TOPIC.into(),
        partitions: i32::try_from(partitions)?,
        ..Topic::default()
    };
    let request = CreateTopicRequest {
        topic: Some(topic),
        ..CreateTopicRequest::default()
    };
    TopicServiceClient::new(connect(address).await?)
        .create_topic(request)
        .await?;
    Ok(())
}

/// One stream, eight batches in flight, over all partitions in turn.
pub(crate) async fn produce(
    address: &str,
    batch: &Bytes,
    batches: u64,
    partitions: u32,
) -> Result<(), Failure> {
    let mut client = LogServiceClient::new(connect(address).await?);
    let (sender, requests) = mpsc::channel(REQUESTS_MAX);
    let mut answers = client
        .produce_stream(ReceiverStream::new(requests))
        .await?
        .into_inner();
    let (mut sent, mut answered) = (0, 0);
    while answered < batches {
        while sent < batches && sent - answered < IN_FLIGHT {
            let part = PartitionBatch {
                partition: i32::try_from(sent % u64::from(partitions))?,
                batch: batch.clone(),
            };
            let request = ProduceRequest {
                topic: TOPIC.into(),
                batches: vec![part],
                ..ProduceRequest::default()
            };
            let sequence = i64::try_from(sent)?;
            let message = ProduceStreamRequest {
                sequence,
                request: Some(request),
            };
            sender.send(message).await?;
            sent += 1;
        }
        let answer = answers.next().await.ok_or("the stream ended")??;
        match answer.outcome {
            Some(Outcome::Response(_)) => answered += 1,
            other => return Err(format!("refused: {other:?}").into()),
        }
    }
    Ok(())
}

async fn tail(address: &str) -> Result<(), Failure> {
    let mut client =
        LogServiceClient::new(connect(address).await?).max_decoding_message_size(64 << 20);
    let mut pieces = client.tail(TailRequest::default()).await?.into_inner();
    while let Some(piece) = pieces.next().await {
        piece?;
    }
    Ok(())
}

async fn consume(address: &str, batches: u64) -> Result<(), Failure> {
    let mut client =
        GroupServiceClient::new(connect(address).await?).max_decoding_message_size(64 << 20);
    let (sender, requests) = mpsc::channel(64);
    let start = ConsumeRequest {
        group: TOPIC.into(),
        topics: vec![TOPIC.into()],
        as_batches: true,
        max_records: 10_000,
        max_bytes: 2 << 20,
        ..ConsumeRequest::default()
    };
    let ask = |message| ConsumeSessionRequest {
        message: Some(message),
        sequence: 0,
    };
    sender.send(ask(Ask::Start(start))).await?;
    sender.send(ask(Ask::Credit(CREDIT))).await?;
    let mut answers = client
        .consume_session(ReceiverStream::new(requests))
        .await?
        .into_inner();
    let (wanted, mut got) = (batches * u64::from(RECORDS_PER_BATCH), 0);
    while got < wanted {
        let answer = answers.next().await.ok_or("the session ended")??;
        if let Some(Answer::Response(response)) = answer.message
            && !response.ack_token.is_empty()
        {
            for batch in &response.batches {
                varvelog_store::batch::verify_crc(&batch.batch)?;
                got += u64::try_from(batch.record_count)?;
            }
            let ack = AckRequest {
                ack_token: response.ack_token,
                ..AckRequest::default()
            };
            sender.send(ask(Ask::Ack(ack))).await?;
            sender.send(ask(Ask::Credit(1))).await?;
        }
    }
    Ok(())
}
