//! How the lag of each group went over the last minutes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::MonoMs;
use crate::core::durable_groups::DurableGroup;
use crate::core::handle::CoreView;
use crate::names::GroupName;
use crate::service::context::Context;
use crate::service::edge::Phase;

/// How often a sample is taken.
const INTERVAL: Duration = Duration::from_mins(1);
/// Over how long a trend is judged.
const SPAN: Duration = Duration::from_mins(5);
/// As many samples as lie in the span, and the one it begins with.
const SAMPLES_MAX: usize = 6;

/// What a group had at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: MonoMs,
    /// Records not done.
    pub(super) lag: u64,
}

/// Which way a group goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Trend {
    /// Lag was above 0 throughout the span, and is larger than before.
    pub(super) is_lagging: bool,
    /// When it has caught up at the rates of the samples; none if it does not.
    pub(super) catch_up: Option<Duration>,
}

/// The samples of all groups.
#[derive(Debug, Default)]
pub(in crate::service) struct Trends {
    /// Oldest first; guarded for as long as one look takes.
    samples: Mutex<BTreeMap<GroupName, VecDeque<Sample>>>,
}

impl Trends {
    /// The trend of a group that is at `now`.
    pub(super) fn of(&self, group: &GroupName, now: Sample) -> Trend {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        judge(samples.get(group).unwrap_or(&VecDeque::new()), now)
    }

    /// Adds a sample of each group; groups without one are forgotten.
    fn add(&self, mut taken: BTreeMap<GroupName, Sample>) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.retain(|group, _| taken.contains_key(group));
        while let Some((group, sample)) = taken.pop_first() {
            let of_group = samples.entry(group).or_default();
            if of_group.len() == SAMPLES_MAX {
                of_group.pop_front();
            }
            of_group.push_back(sample);
        }
    }
}

fn judge(samples: &VecDeque<Sample>, now: Sample) -> Trend {
    let Some(first) = samples.front() else {
        let catch_up = (now.lag == 0).then_some(Duration::ZERO);
        return Trend {
            catch_up,
            ..Trend::default()
        };
    };
    let passed = now.at.since(first.at);
    let was_behind = samples.iter().all(|sample| sample.lag > 0);
    let is_lagging = passed >= SPAN && was_behind && now.lag > first.lag;
    // Lag falls by what is done beyond what comes in.
    let fallen = first.lag.saturating_sub(now.lag);
    let catch_up = if now.lag == 0 {
        Some(Duration::ZERO)
    } else if fallen == 0 || passed.is_zero() {
        None
    } else {
        let passed_ms = u128::from(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        let left_ms = u128::from(now.lag) * passed_ms / u128::from(fallen);
        Some(Duration::from_millis(
            u64::try_from(left_ms).unwrap_or(u64::MAX),
        ))
    };
    Trend {
        is_lagging,
        catch_up,
    }
}

/// Takes samples until the edge drains.
pub(in crate::service) async fn watch_trends(context: Arc<Context>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = context.phase.reached(Phase::Draining) => return,
        }
        let at = context.services.clock.mono();
        let taken = context.core().query(move |view| {
            let groups = view.state.groups.iter();
            groups
                .map(|group| (group.name.clone(), sample(view, group, at)))
                .collect()
        });
        match taken.await {
            Ok(taken) => context.trends.add(taken),
            // A busy broker is sampled the next time.
            Err(error) => tracing::debug!(%error, "no sample of the groups was taken"),
        }
    }
}

fn sample(view: &CoreView<'_>, group: &DurableGroup, at: MonoMs) -> Sample {
    let mut sample = Sample { at, lag: 0 };
    for (topic, read) in group.topics_by_name(&view.state.topics) {
        for (partition, progress) in topic.partitions.iter().zip(&read.partitions) {
            let lag = progress.not_done(partition.next());
            sample.lag = sample.lag.saturating_add(lag);
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64, lag: u64) -> Sample {
        Sample {
            at: MonoMs(minutes * 60_000),
            lag,
        }
    }

    fn judged(lags: &[u64], now: Sample) -> Trend {
        let samples = (0..)
            .zip(lags)
            .map(|(minute, lag)| at(minute, *lag))
            .collect();
        judge(&samples, now)
    }

    #[test]
    fn a_group_lags_when_it_was_behind_for_five_minutes_and_fell_further() {
        assert!(judged(&[5, 6, 7, 8, 9], at(5, 10)).is_lagging);
        assert!(
            !judged(&[5, 6, 7, 8, 9], at(4, 10)).is_lagging,
            "not long enough"
        );
        assert!(
            !judged(&[5, 6, 0, 8, 9], at(5, 10)).is_lagging,
            "caught up in between"
        );
        assert!(
            !judged(&[5, 6, 7, 8, 9], at(5, 5)).is_lagging,
            "not further behind"
        );
        assert_eq!(judged(&[], at(5, 5)), Trend::default());
    }

    #[test]
    fn the_time_to_catch_up_goes_by_the_rate_at_which_lag_falls() {
        let minutes = |minutes| Some(Duration::from_mins(minutes));
        assert_eq!(judged(&[30], at(2, 10)).catch_up, minutes(1));
        assert_eq!(judged(&[30], at(2, 30)).catch_up, None);
        assert_eq!(judged(&[30], at(2, 40)).catch_up, None);
        assert_eq!(judged(&[30], at(2, 0)).catch_up, minutes(0));
        assert_eq!(
            judged(&[u64::MAX], at(u64::MAX / 60_000, 1)).catch_up,
            minutes(0)
        );
    }

    #[test]
    fn only_so_many_samples_are_kept_and_none_of_a_group_that_is_gone() {
        let trends = Trends::default();
        let name = |name| GroupName::parse(name).unwrap();
        for minute in 0..20 {
            trends.add([(name("a"), at(minute, 1))].into());
        }
        let kept = trends
            .samples
            .lock()
            .unwrap()
            .get(&name("a"))
            .unwrap()
            .clone();
        assert_eq!((kept.len(), kept[0].at), (SAMPLES_MAX, MonoMs(14 * 60_000)));
        trends.add([(name("b"), at(0, 1))].into());
        assert!(!trends.samples.lock().unwrap().contains_key(&name("a")));
    }
}
