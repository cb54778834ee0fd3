//! `varvelog retry now`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::views::matched_view;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse::{self, RecordPlace};

/// Records of one call, so that it stays small whatever the length of their topics' names.
const CALL_RECORDS_MAX: usize = 2_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct NowArgs {
    /// The group
    #[arg(short, long)]
    group: String,
    /// Only of this topic
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        conflicts_with = "records"
    )]
    topic: String,
    /// Only these, by their first append; none given: all that wait
    #[arg(value_name = "TOPIC/PARTITION@OFFSET", value_parser = parse::record_place)]
    records: Vec<RecordPlace>,
    /// Tell how many there are, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: NowArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let admin = Admin::new(&connection);
    let mut matched = 0;
    for request in args.requests() {
        let answer = admin.retry_now(request).await;
        matched += answer.map_err(|error| connection.failure(error))?;
    }
    context.output.show(&matched_view(matched, args.dry_run))?;
    if args.dry_run {
        context.output.note("dry run: nothing was changed");
    }
    Ok(())
}

impl NowArgs {
    /// In as many calls as it takes.
    fn requests(&self) -> Vec<v1::RetryNowRequest> {
        let request = |records: &[RecordPlace]| v1::RetryNowRequest {
            group: self.group.clone(),
            topic: self.topic.clone(),
            records: records.iter().map(RecordPlace::to_record).collect(),
            validate_only: self.dry_run,
        };
        if self.records.is_empty() {
            return vec![request(&[])];
        }
        self.records.chunks(CALL_RECORDS_MAX).map(request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_records_take_several_calls_and_none_given_are_all() {
        let mut args = NowArgs {
            group: "email".into(),
            topic: String::new(),
            records: Vec::new(),
            dry_run: true,
        };
        let all = args.requests();
        assert_eq!(all.len(), 1);
        assert!(all[0].records.is_empty() && all[0].validate_only);
        let place = parse::record_place("orders/0@1").unwrap();
        args.records = vec![place; 4_001];
        let sizes: Vec<_> = args
            .requests()
            .iter()
            .map(|call| call.records.len())
            .collect();
        assert_eq!(sizes, [2_000, 2_000, 1]);
    }
}
