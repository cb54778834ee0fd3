//! `varvelog dlq stats`.

use std::time::Duration;

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::views::stats_view;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatsArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// How far back from now, 1m to 30d
    #[arg(long, default_value = "24h", value_parser = parse::duration, value_name = "DURATION")]
    window: Duration,
    /// Steps of the trend
    #[arg(long, default_value_t = 24, value_name = "N",
        value_parser = clap::value_parser!(i32).range(1..=1_440))]
    buckets: i32,
}

pub(crate) async fn run(args: StatsArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = v1::GetDeadLetterStatsRequest {
        queue: args.queue,
        window: prost_types::Duration::try_from(args.window).ok(),
        buckets: args.buckets,
    };
    let stats = Admin::new(&connection).dead_letter_stats(request).await;
    let stats = stats.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&stats_view(&stats, &zone))?;
    let queue = stats.queue.unwrap_or_default();
    let top = stats
        .errors
        .iter()
        .find(|error| !error.fingerprint.is_empty());
    if let Some(error) = top {
        let note = format!(
            "next: varvelog dlq show {} --fingerprint {}",
            queue.name, error.fingerprint
        );
        context.output.note(&note);
    }
    Ok(())
}
