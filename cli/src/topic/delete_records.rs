//! `varvelog topic delete-records`.

use std::collections::BTreeMap;

use clap::Args;
use varvelog_proto::v1;

use super::describe::get_topic;
use super::views::{Cut, cuts_view};
use crate::clock;
use crate::confirm::Consent;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteRecordsArgs {
    /// The topic
    name: String,
    /// Of which partition; may be given again
    #[arg(short, long = "partition", value_name = "PARTITION")]
    partitions: Vec<i32>,
    /// Of every partition
    #[arg(
        long,
        conflicts_with = "partitions",
        required_unless_present = "partitions"
    )]
    all_partitions: bool,
    /// Everything before this goes: an offset, latest, a time, -15m, or -N to keep the last N
    #[arg(long, value_parser = parse::from, allow_hyphen_values = true, value_name = "POSITION")]
    before: parse::From,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: DeleteRecordsArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let topic = get_topic(&connection, &args.name).await?;
    let request = connection.request(v1::ListOffsetsRequest {
        topic: args.name.clone(),
        partitions: args.partitions.clone(),
        at: Some(args.before.to_position(clock::unix_ms())),
    });
    let found = connection
        .answer(connection.log().list_offsets(request))
        .await?;
    let mut cuts = plan(&topic, &found.offsets);
    let question = format!("Delete these records of {}?", args.name);
    if !args
        .consent
        .obtain(&cuts_view(&args.name, &cuts), &question, context)?
    {
        return Ok(());
    }
    for cut in &mut cuts {
        cut.earliest_after = delete(&connection, &args.name, cut).await?;
    }
    context.output.show(&cuts_view(&args.name, &cuts))?;
    Ok(())
}

fn plan(topic: &v1::Topic, offsets: &[v1::PartitionOffset]) -> Vec<Cut> {
    let status: BTreeMap<i32, &v1::PartitionStatus> = topic
        .status
        .iter()
        .map(|status| (status.partition, status))
        .collect();
    let cut = |found: &v1::PartitionOffset| {
        let status = status.get(&found.partition)?;
        Some(Cut {
            partition: found.partition,
            earliest_before: status.earliest_offset,
            earliest_after: found.offset.max(status.earliest_offset),
            latest: status.latest_offset,
        })
    };
    offsets.iter().filter_map(cut).collect()
}

async fn delete(connection: &Connection, name: &str, cut: &Cut) -> Result<i64, Failure> {
    let request = connection.request(v1::DeleteRecordsRequest {
        name: name.to_owned(),
        partition: cut.partition,
        before_offset: cut.earliest_after,
        validate_only: false,
    });
    let answer = connection
        .answer(connection.topics().delete_records(request))
        .await?;
    Ok(answer.earliest_offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_moves_the_start_back() {
        let status = |partition, earliest_offset, latest_offset| v1::PartitionStatus {
            partition,
            earliest_offset,
            latest_offset,
            ..v1::PartitionStatus::default()
        };
        let topic = v1::Topic {
            status: vec![status(0, 10, 20), status(1, 0, 5)],
            ..v1::Topic::default()
        };
        let at = |partition, offset| v1::PartitionOffset {
            partition,
            offset,
            append_time_ms: -1,
        };
        let cuts = plan(&topic, &[at(0, 3), at(1, 5), at(7, 1)]);
        let cut = |partition, earliest_before, earliest_after, latest| Cut {
            partition,
            earliest_before,
            earliest_after,
            latest,
        };
        assert_eq!(cuts, [cut(0, 10, 10, 20), cut(1, 0, 5, 5)]);
    }
}
