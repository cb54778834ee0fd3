//! `varvelog group settle`.

use clap::{ArgGroup, Args};
use serde_json::json;
use varvelog_client::Admin;
use varvelog_proto::v1;

use crate::confirm::Consent;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Block, View, show_count};
use crate::parse::{self, RecordPlace};

/// Records of one call, so that it stays small whatever the length of their topics' names.
const CALL_RECORDS_MAX: usize = 2_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("action").required(true),
    after_help = "Records that are done already are passed over. What a member does with a record \
                  after it was settled here is void. `varvelog group describe` shows what holds a \
                  group back."
)]
pub(crate) struct SettleArgs {
    /// The group
    #[arg(short, long)]
    group: String,
    /// Which records, by their first append
    #[arg(required = true, value_name = "TOPIC/PARTITION@OFFSET",
        value_parser = parse::record_place)]
    records: Vec<RecordPlace>,
    /// They are done, without having been processed
    #[arg(long, group = "action")]
    skip: bool,
    /// They are dead letters
    #[arg(long, group = "action")]
    dead_letter: bool,
    /// They are given out at once, and their failures are forgotten
    #[arg(long, group = "action")]
    retry: bool,
    /// Why, for the audit; at most 512 bytes
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    note: String,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: SettleArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let (action, verb) = args.action();
    let places: Vec<_> = args.records.iter().map(RecordPlace::to_record).collect();
    let mut request = v1::SettleRecordsRequest {
        group: args.group.clone(),
        records: places,
        action: action.into(),
        note: args.note.clone(),
        validate_only: true,
    };
    let open = settle(&connection, &request).await?;
    let question = format!("{verb} these records of {}?", args.group);
    let plan = plan_view(&args.records, open);
    if !args.consent.obtain(&plan, &question, context)? {
        return Ok(());
    }
    request.validate_only = false;
    let settled = settle(&connection, &request).await?;
    context.output.show(&done_view(settled))?;
    Ok(())
}

impl SettleArgs {
    fn action(&self) -> (v1::OperatorAction, &'static str) {
        if self.skip {
            (v1::OperatorAction::Skip, "Skip")
        } else if self.dead_letter {
            (v1::OperatorAction::DeadLetter, "Dead-letter")
        } else {
            (v1::OperatorAction::Retry, "Retry")
        }
    }
}

/// In as many calls as it takes; answers how many records were not done.
async fn settle(
    connection: &Connection,
    request: &v1::SettleRecordsRequest,
) -> Result<i64, Failure> {
    let admin = Admin::new(connection);
    let mut settled = 0;
    for records in request.records.chunks(CALL_RECORDS_MAX) {
        let call = v1::SettleRecordsRequest {
            records: records.to_vec(),
            ..request.clone()
        };
        let answer = admin.settle_records(call).await;
        settled += answer.map_err(|error| connection.failure(error))?;
    }
    Ok(settled)
}

fn plan_view(records: &[RecordPlace], open: i64) -> View {
    let row = |place: &RecordPlace| {
        vec![
            place.topic.clone(),
            place.partition.to_string(),
            place.offset.to_string(),
        ]
    };
    let table = Block::Table {
        title: String::new(),
        header: vec!["TOPIC", ">PARTITION", ">OFFSET"],
        rows: records.iter().map(row).collect(),
    };
    let count = Block::Text(format!("{} of them are not done", show_count(open)));
    View {
        blocks: vec![table, count],
        json: json!({ "settled": open.to_string() }),
        items: vec![json!({ "settled": open.to_string() })],
        names: records.iter().map(RecordPlace::to_string).collect(),
    }
}

fn done_view(settled: i64) -> View {
    let text = format!("{} settled", show_count(settled));
    let json = json!({ "settled": settled.to_string() });
    View::one(settled.to_string(), json, vec![Block::Text(text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_each_record_and_how_many_are_open() {
        let records =
            ["orders/1@17", "orders.eu/0@9"].map(|text| parse::record_place(text).unwrap());
        let plan = plan_view(&records, 1);
        insta::assert_snapshot!(plan.to_text(str::to_owned));
        assert_eq!(plan.names, ["orders/1@17", "orders.eu/0@9"]);
        assert_eq!(done_view(1).json.to_string(), "{\"settled\":\"1\"}");
    }
}
