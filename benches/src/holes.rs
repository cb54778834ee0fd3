//! A window full of holes: a million records of which every third stays unsettled. Memory, the
//! rate of hand-outs at the beginning and at the end, and the start after a kill.

use std::time::Instant;

use tokio::sync::mpsc;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::{AckRequest, ConsumeRequest, CreateGroupRequest, GroupConfig, GroupMode};

use crate::drive::{self, Failure, Options, TOPIC};

const PARTITIONS: u32 = 64;
const RECORDS: u64 = 1_000_000;
const RECORDS_PER_BATCH: u32 = 250;
const WORKERS: usize = 16;
/// Responses that one stream may have out.
const HELD_MAX: i32 = 1_000;
/// Hand-outs over which a rate is taken.
const STRETCH: u64 = 100_000;

/// Prints the figures.
#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let mut broker = drive::broker(options, "always", true)?;
    drive::create_topic(&broker.address, PARTITIONS).await?;
    create_group(&broker.address).await?;
    let batch = drive::batch(RECORDS_PER_BATCH)?;
    let batches = RECORDS / u64::from(RECORDS_PER_BATCH);
    drive::produce(&broker.address, &batch, batches, PARTITIONS).await?;
    let before = broker.resident_kib();
    let (tell, mut told) = mpsc::channel(1024);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| tokio::spawn(worker(broker.address.clone(), tell.clone())))
        .collect();
    let (mut seen, mut start) = (0_u64, Instant::now());
    while seen < RECORDS {
        told.recv().await.ok_or("all workers ended")?;
        seen += 1;
        if seen.is_multiple_of(STRETCH) {
            let rate = STRETCH as f64 / start.elapsed().as_secs_f64();
            let grown = broker.resident_kib().saturating_sub(before);
            println!("{seen:>8} given out: {rate:>8.0} records/s, {grown} KiB more resident");
            start = Instant::now();
        }
    }
    for worker in workers {
        worker.abort();
    }
    broker.kill()?;
    let start = Instant::now();
    broker = drive::broker(options, "always", false)?;
    println!(
        "start after kill -9 with every third of {RECORDS} records unsettled: {:.3} s, \
         {} KiB resident",
        start.elapsed().as_secs_f64(),
        broker.resident_kib()
    );
    Ok(())
}

async fn create_group(address: &str) -> Result<(), Failure> {
    let config = GroupConfig {
        mode: GroupMode::Queue.into(),
        max_in_flight: 10_000,
        visibility_timeout: std::time::Duration::from_hours(1).try_into().ok(),
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

/// Settles what it receives one by one, but for every third, which it keeps for ever.
async fn worker(address: String, tell: mpsc::Sender<()>) -> Result<(), String> {
    let channel = drive::connect(&address)
        .await
        .map_err(|it| it.to_string())?;
    let mut client = GroupServiceClient::new(channel);
    let mut number = 0_u64;
    loop {
        // Held responses use up the room of a stream: when there is none left, and so nothing more
        // on its way, a new one goes on beside it.
        let request = ConsumeRequest {
            group: TOPIC.into(),
            max_records: 1,
            max_unacked_responses: HELD_MAX,
            ..ConsumeRequest::default()
        };
        let stream = client.clone().consume(request).await;
        let mut stream = stream.map_err(|it| it.to_string())?.into_inner();
        let mut held = 0;
        let mut keep = Vec::new();
        while held < HELD_MAX
            && let Some(response) = stream.message().await.map_err(|it| it.to_string())?
        {
            if response.records.is_empty() {
                continue;
            }
            number += 1;
            tell.send(()).await.map_err(|it| it.to_string())?;
            if number.is_multiple_of(3) {
                held += 1;
                continue;
            }
            let ack = AckRequest {
                ack_token: response.ack_token,
                ..AckRequest::default()
            };
            client.ack(ack).await.map_err(|it| it.to_string())?;
        }
        keep.push(stream);
        tokio::spawn(async move {
            let _open = keep;
            std::future::pending::<()>().await;
        });
    }
}
