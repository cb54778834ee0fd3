//! `varvelog dlq tail`.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use varvelog_proto::v1;

use super::filter::{FilterArgs, timestamp};
use super::pages::letters;
use super::views::letters_view;
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Dead letters that one look brings, at most; more than may die in the time it looks back.
const LOOK_MAX: u32 = 100_000;
/// A death is seen up to so much later than it happened: it is committed after its copy was made.
const LATE_MS: i64 = 60_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct TailArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Begin with the last N
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=1_000))]
    last: u32,
    /// How often to look, at least 100ms
    #[arg(long, default_value = "1s", value_parser = parse::duration, value_name = "DURATION")]
    interval: Duration,
    /// End instead of waiting for more
    #[arg(short, long)]
    exit: bool,
}

pub(crate) async fn run(args: TailArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut seen = Seen::new(clock::unix_ms());
    let mut last = last(&connection, &args).await?;
    last.reverse();
    // What is there already and is not among the last is not to come later.
    for letter in recent(&connection, &args, &seen).await? {
        seen.add(&letter);
    }
    for letter in &last {
        seen.add(letter);
    }
    show(&last, context)?;
    let mut ticks = tokio::time::interval(args.interval.max(INTERVAL_MIN));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    if args.exit {
        return Ok(());
    }
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|error| Failure::io("Ctrl-C", &error));
            }
        }
        let mut fresh = recent(&connection, &args, &seen).await?;
        fresh.retain(|letter| seen.add(letter));
        show(&fresh, context)?;
    }
}

fn show(letters: &[v1::DeadLetter], context: &mut Context) -> Result<(), Failure> {
    if !letters.is_empty() {
        context
            .output
            .show(&letters_view(letters, clock::unix_ms()))?;
        context.output.flush()?;
    }
    Ok(())
}

fn request(args: &TailArgs) -> v1::ListDeadLettersRequest {
    v1::ListDeadLettersRequest {
        queue: args.queue.clone(),
        filter: Some(args.filter.to_filter(&[])),
        omit_values: true,
        ..v1::ListDeadLettersRequest::default()
    }
}

async fn last(connection: &Connection, args: &TailArgs) -> Result<Vec<v1::DeadLetter>, Failure> {
    let request = v1::ListDeadLettersRequest {
        newest_first: true,
        ..request(args)
    };
    if args.last == 0 {
        return Ok(Vec::new());
    }
    Ok(letters(connection, &request, args.last).await?.0)
}

/// What died since the last look, or shortly before it; oldest first.
async fn recent(
    connection: &Connection,
    args: &TailArgs,
    seen: &Seen,
) -> Result<Vec<v1::DeadLetter>, Failure> {
    let mut request = request(args);
    if let Some(filter) = &mut request.filter {
        let since = timestamp(seen.since_ms);
        let asked = filter
            .died_after_time
            .filter(|asked| (asked.seconds, asked.nanos) > (since.seconds, since.nanos));
        filter.died_after_time = asked.or(Some(since));
    }
    Ok(letters(connection, &request, LOOK_MAX).await?.0)
}

/// Dead letters that were shown, as far back as others may still come.
struct Seen {
    since_ms: i64,
    ids: BTreeSet<(i64, i32, i64)>,
}

impl Seen {
    /// Nothing; what died long before now is not waited for.
    fn new(now_ms: i64) -> Self {
        Self {
            since_ms: now_ms.saturating_sub(LATE_MS),
            ids: BTreeSet::new(),
        }
    }

    /// Adds one; false if it was there.
    fn add(&mut self, letter: &v1::DeadLetter) -> bool {
        let id = letter.id.unwrap_or_default();
        let died = letter.death_time.unwrap_or_default();
        let died_ms = died.seconds * 1_000 + i64::from(died.nanos / 1_000_000);
        let is_fresh = self.ids.insert((died_ms, id.partition, id.offset));
        self.since_ms = self.since_ms.max(died_ms.saturating_sub(LATE_MS));
        self.ids = self.ids.split_off(&(self.since_ms, i32::MIN, i64::MIN));
        is_fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(died_ms: i64, offset: i64) -> v1::DeadLetter {
        v1::DeadLetter {
            id: Some(v1::DeadLetterId {
                partition: 0,
                offset,
            }),
            death_time: Some(timestamp(died_ms)),
            ..v1::DeadLetter::default()
        }
    }

    #[test]
    fn each_is_shown_once_even_when_it_comes_late() {
        let mut seen = Seen::new(100_000);
        assert!(seen.add(&letter(100_000, 7)));
        assert!(seen.add(&letter(99_000, 6)), "committed later than 7");
        assert!(!seen.add(&letter(99_000, 6)) && !seen.add(&letter(100_000, 7)));
        assert!(seen.add(&letter(100_000 + 2 * LATE_MS, 8)));
        assert_eq!((seen.since_ms, seen.ids.len()), (100_000 + LATE_MS, 1));
    }
}
