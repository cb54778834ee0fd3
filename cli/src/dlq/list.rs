//! `varvelog dlq list`.

use clap::Args;

use super::pages::queues;
use super::views::queues_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Only those of this group
    #[arg(short, long, default_value = "", hide_default_value = true)]
    group: String,
    /// Also those that are empty
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(args: ListArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let found = queues(&connection, &args.group).await?;
    let is_shown = |queue: &varvelog_proto::v1::DeadLetterQueue| {
        args.all || queue.depth > 0 || queue.waiting > 0
    };
    let (shown, empty): (Vec<_>, Vec<_>) = found.into_iter().partition(is_shown);
    context.output.show(&queues_view(&shown))?;
    if !empty.is_empty() {
        let note = format!("{} without dead letters: --all shows them", empty.len());
        context.output.note(&note);
    }
    let fullest = shown.iter().max_by_key(|queue| queue.depth);
    if let Some(queue) = fullest.filter(|queue| queue.depth > 0) {
        let note = format!("next: varvelog dlq stats {}", queue.name);
        context.output.note(&note);
    }
    Ok(())
}
