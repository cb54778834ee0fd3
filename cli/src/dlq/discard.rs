//! `varvelog dlq discard`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::filter::{FilterArgs, entry};
use super::job_views::discard_view;
use crate::confirm::Consent;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiscardArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Only these
    #[arg(value_name = "PARTITION@OFFSET", value_parser = entry)]
    entries: Vec<v1::DeadLetterId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// For the audit
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

pub(crate) async fn run(args: DiscardArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let admin = Admin::new(&connection);
    let failed = |error| connection.failure(error);
    let request = v1::DiscardDeadLettersRequest {
        queue: args.queue.clone(),
        filter: Some(args.filter.to_filter(&args.entries)),
        validate_only: true,
        note: args.note.clone(),
        plan_id: String::new(),
    };
    let plan = admin.discard_dead_letters(request.clone()).await;
    let plan = plan.map_err(failed)?;
    let question = format!(
        "Drop {} dead letters of {} for good?",
        plan.matched, args.queue
    );
    let view = discard_view(&args.queue, &plan);
    if !args.consent.obtain(&view, &question, context)? {
        return Ok(());
    }
    let request = v1::DiscardDeadLettersRequest {
        filter: None,
        validate_only: false,
        plan_id: plan.plan_id,
        ..request
    };
    let done = admin.discard_dead_letters(request).await.map_err(failed)?;
    context.output.show(&discard_view(&args.queue, &done))?;
    Ok(())
}
