//! What a broker costs at rest: the start after a kill, with little and with much data, and the
//! CPU and memory of one that only waits.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::{ConsumeRequest, ConsumeSessionRequest, consume_session_request::Message};

use crate::drive::{self, Failure, Options};
use crate::process::Server;

const PARTITIONS: u32 = 1000;
const MEMBERS: usize = 20;
const IDLE: Duration = Duration::from_secs(30);
/// MiB of data at the first measured start, and at the second.
const SIZES_MIB: [u64; 2] = [512, 5120];

/// Prints the time from the start of the process to its ready line, after `kill -9`.
#[expect(clippy::print_stdout, reason = "the report of the program")]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) async fn startup(options: &Options) -> Result<(), Failure> {
    let mut broker = drive::broker(options, "always", true)?;
    drive::create_topic(&broker.address, PARTITIONS).await?;
    let batch = drive::batch(256)?;
    let mut written_mib = 0;
    for mib in SIZES_MIB {
        let batches = ((mib - written_mib) << 20) / batch.len() as u64;
        drive::produce(&broker.address, &batch, batches, PARTITIONS).await?;
        written_mib = mib;
        broker.kill()?;
        let start = Instant::now();
        broker = drive::broker(options, "always", false)?;
        let elapsed = start.elapsed().as_secs_f64();
        println!("start with {PARTITIONS} partitions and {mib} MiB after kill -9: {elapsed:.3} s");
    }
    Ok(())
}

/// Prints CPU and memory of a broker with many partitions and members and no traffic.
#[expect(clippy::print_stdout, reason = "the report of the program")]
pub(crate) async fn idle(options: &Options) -> Result<(), Failure> {
    let broker = drive::broker(options, "always", true)?;
    drive::create_topic(&broker.address, PARTITIONS).await?;
    let mut members = Vec::with_capacity(MEMBERS);
    for _ in 0..MEMBERS {
        members.push(member(&broker).await?);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = broker.cpu_seconds();
    tokio::time::sleep(IDLE).await;
    let cpu = broker.cpu_seconds() - before;
    println!(
        "idle with {PARTITIONS} partitions and {MEMBERS} members: \
         {:.2} % of a core, {} KiB resident",
        100.0 * cpu / IDLE.as_secs_f64(),
        broker.resident_kib(),
    );
    drop(members);
    Ok(())
}

/// A member's stream, kept open by what is returned.
async fn member(broker: &Server) -> Result<impl Sized, Failure> {
    let mut client = GroupServiceClient::new(drive::connect(&broker.address).await?);
    let (sender, requests) = mpsc::channel(4);
    let start = ConsumeRequest {
        group: "idle".into(),
        topics: vec![drive::TOPIC.into()],
        ..ConsumeRequest::default()
    };
    for message in [Message::Start(start), Message::Credit(8)] {
        sender
            .send(ConsumeSessionRequest {
                message: Some(message),
                sequence: 0,
            })
            .await?;
    }
    let answers = client
        .consume_session(ReceiverStream::new(requests))
        .await?
        .into_inner();
    Ok((sender, answers))
}
