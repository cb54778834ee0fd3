//! `varvelog dlq show`.

use clap::Args;
use varvelog_proto::v1;

use super::filter::{FilterArgs, entry};
use super::pages::letters;
use super::views::{letter_view, letters_view};
use crate::clock;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Only these; of a single one all is shown
    #[arg(value_name = "PARTITION@OFFSET", value_parser = entry)]
    entries: Vec<v1::DeadLetterId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// The first so many
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Oldest first
    #[arg(long)]
    oldest: bool,
    /// With error stacks
    #[arg(long)]
    stack: bool,
    /// Without values
    #[arg(long)]
    no_values: bool,
}

pub(crate) async fn run(args: ShowArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let is_one = args.entries.len() == 1;
    let request = v1::ListDeadLettersRequest {
        queue: args.queue.clone(),
        filter: Some(args.filter.to_filter(&args.entries)),
        with_stack: args.stack || is_one,
        newest_first: !args.oldest,
        omit_values: args.no_values,
        ..v1::ListDeadLettersRequest::default()
    };
    let (found, has_more) = letters(&connection, &request, args.limit).await?;
    let zone = context.output.zone.clone();
    if let (true, [letter]) = (is_one, found.as_slice()) {
        context.output.show(&letter_view(letter, &zone))?;
        return Ok(());
    }
    context
        .output
        .show(&letters_view(&found, clock::unix_ms()))?;
    if has_more {
        context.output.note("there are more: --limit shows them");
    }
    if let Some(id) = found.first().and_then(|letter| letter.id) {
        let note = format!(
            "next: varvelog dlq show {} {}@{}",
            args.queue, id.partition, id.offset
        );
        context.output.note(&note);
    }
    Ok(())
}
