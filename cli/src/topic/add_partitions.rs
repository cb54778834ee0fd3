//! `varvelog topic add-partitions`.

use clap::Args;
use varvelog_proto::v1;

use super::views::topic_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddPartitionsArgs {
    /// Its name
    name: String,
    /// How many there shall be in all
    #[arg(long)]
    total: i32,
    /// Even where a group's order by key may suffer
    #[arg(long)]
    force: bool,
    /// Check and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: AddPartitionsArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = connection.request(v1::AddPartitionsRequest {
        name: args.name,
        total: args.total,
        validate_only: args.dry_run,
        force: args.force,
    });
    let answer = connection
        .answer(connection.topics().add_partitions(request))
        .await?;
    let topic = answer.topic.unwrap_or_default();
    context
        .output
        .show(&topic_view(&topic, &[], &context.output.zone.clone()))?;
    if args.dry_run {
        context.output.note("dry run: nothing was changed");
    }
    Ok(())
}
