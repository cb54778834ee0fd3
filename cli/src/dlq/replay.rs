//! `varvelog dlq replay`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::filter::{FilterArgs, entry};
use super::job_views::{job_view, replay_plan_view};
use super::jobs::wait;
use crate::confirm::Consent;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct ReplayArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Only these
    #[arg(value_name = "PARTITION@OFFSET", value_parser = entry)]
    entries: Vec<v1::DeadLetterId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Entries per second, 1 to 10,000
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    rate: f64,
    /// The oldest so many only
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    limit: Option<i64>,
    /// Replay so many first, and go on only if all of them are processed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    canary: Option<i32>,
    /// Go on though more than half of the records fail again
    #[arg(long)]
    keep_on_refail: bool,
    /// Also records that were replayed three times already
    #[arg(long)]
    force: bool,
    /// Though the group holds order, and later records of a key may be done
    #[arg(long)]
    accept_reordering: bool,
    /// Into this topic, which all its groups see, and not back to the group
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TOPIC"
    )]
    to: String,
    /// For the audit
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    note: String,
    /// The same id again is the same job, whatever the plan
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ID")]
    request_id: String,
    /// Wait for the end of the job
    #[arg(short, long)]
    wait: bool,
    #[command(flatten)]
    consent: Consent,
}

impl ReplayArgs {
    fn request(&self) -> v1::ReplayDeadLettersRequest {
        v1::ReplayDeadLettersRequest {
            queue: self.queue.clone(),
            filter: Some(self.filter.to_filter(&self.entries)),
            target_topic: self.to.clone(),
            max_per_second: self.rate,
            limit: self.limit.unwrap_or_default(),
            validate_only: false,
            request_id: self.request_id.clone(),
            note: self.note.clone(),
            plan_id: String::new(),
            force: self.force,
            canary: self.canary.unwrap_or_default(),
            keep_on_refail: self.keep_on_refail,
            accept_reordering: self.accept_reordering,
        }
    }
}

pub(crate) async fn run(args: ReplayArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let admin = Admin::new(&connection);
    let failed = |error| connection.failure(error);
    let mut request = args.request();
    request.validate_only = true;
    let plan = admin.replay_dead_letters(request.clone()).await;
    let plan = plan.map_err(failed)?;
    let view = replay_plan_view(&args.queue, &plan, &context.output.zone.clone());
    let question = format!("Replay {} dead letters of {}?", plan.matched, args.queue);
    if !args.consent.obtain(&view, &question, context)? {
        return Ok(());
    }
    request.validate_only = false;
    // A request that is sent again has another plan and must be the same request.
    if args.request_id.is_empty() {
        request.plan_id = plan.plan_id;
        request.filter = None;
    }
    let started = admin.replay_dead_letters(request).await.map_err(failed)?;
    let job = started.job.unwrap_or_default();
    if args.wait {
        return wait(&connection, &job.id, context).await;
    }
    let zone = context.output.zone.clone();
    context.output.show(&job_view(&job, &zone))?;
    let note = format!("next: varvelog dlq job {} --wait", job.id);
    context.output.note(&note);
    Ok(())
}
