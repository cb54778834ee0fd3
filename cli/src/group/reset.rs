//! `varvelog group reset`.

use clap::{ArgGroup, Args};
use varvelog_proto::v1;

use super::views::changes_view;
use crate::clock;
use crate::confirm::Consent;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("target").required(true))]
pub(crate) struct ResetArgs {
    /// The group
    name: String,
    /// Only of this topic
    #[arg(long, default_value = "", hide_default_value = true)]
    topic: String,
    /// Only of this partition; may be given again
    #[arg(
        short,
        long = "partition",
        requires = "topic",
        value_name = "PARTITION"
    )]
    partitions: Vec<i32>,
    /// To earliest, latest, an offset, a time, -15m for so long ago, or -N for the last N
    #[arg(
        long,
        group = "target",
        value_parser = parse::from,
        allow_hyphen_values = true,
        value_name = "POSITION"
    )]
    to: Option<parse::From>,
    /// So many records forward, or back if negative
    #[arg(
        long,
        group = "target",
        allow_hyphen_values = true,
        value_name = "RECORDS"
    )]
    shift: Option<i64>,
    /// Even with live members; what they hold is void
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: ResetArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut request = v1::ResetOffsetsRequest {
        group: args.name.clone(),
        topic: args.topic,
        partitions: args.partitions,
        to: args.to.map(|to| to.to_position(clock::unix_ms())),
        shift_by: args.shift.unwrap_or_default(),
        validate_only: true,
        force: args.force,
    };
    let plan = connection
        .answer(
            connection
                .group_admin()
                .reset_offsets(connection.request(request.clone())),
        )
        .await?;
    let question = format!("Move the positions of {}?", args.name);
    if !args
        .consent
        .obtain(&changes_view(&plan.changes), &question, context)?
    {
        return Ok(());
    }
    request.validate_only = false;
    let done = connection
        .answer(
            connection
                .group_admin()
                .reset_offsets(connection.request(request)),
        )
        .await?;
    context.output.show(&changes_view(&done.changes))?;
    Ok(())
}
