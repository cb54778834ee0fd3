//! `varvelog group watch`.

use std::time::Duration;

use clap::Args;

use super::calls::get_group;
use super::views::group_view;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatchArgs {
    /// Its name
    name: String,
    /// How often, at least 100ms
    #[arg(long, default_value = "1s", value_parser = parse::duration, value_name = "DURATION")]
    interval: Duration,
    /// End once nothing is left to do
    #[arg(short, long)]
    exit: bool,
}

pub(crate) async fn run(args: WatchArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut ticks = tokio::time::interval(args.interval.max(INTERVAL_MIN));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|error| Failure::io("Ctrl-C", &error));
            }
        }
        let group = get_group(&connection, &args.name).await?;
        context.output.clear()?;
        context
            .output
            .show(&group_view(&group, &context.output.zone.clone()))?;
        if args.exit && group.total_lag == 0 {
            return Ok(());
        }
    }
}
