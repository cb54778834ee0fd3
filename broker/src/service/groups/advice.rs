//! How many workers a group could use: what its depth and age say, given out with a pause between
//! two that differ.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::lags::ages;
use super::offsets::snapshot;
use super::snapshot::GroupSnapshot;
use crate::clock::MonoMs;
use crate::core::admission::Measure;
use crate::core::settings::AdmissionSettings;
use crate::names::GroupName;
use crate::service::context::Context;
use crate::service::status::CallFailure;

/// Above so many records more workers help.
const DEEP: u64 = 1_000;
/// Below so many there are too many workers.
const SHALLOW: u64 = 100;
const MORE: i32 = 2;
const FEWER: i32 = -1;
/// Time after an advice before another one is given.
const COOLDOWN: Duration = Duration::from_mins(1);

/// What workers have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) struct Load {
    /// Records unread, ready or given out; without those that wait for their time.
    pub(in crate::service) depth: u64,
    /// Since the append of the oldest that is not done.
    pub(in crate::service) age: Duration,
}

impl Load {
    pub(super) fn of(group: &GroupSnapshot, age: Duration) -> Self {
        let each = group.partitions.iter();
        let depth = each.map(|one| {
            let all = one.lag.saturating_add(one.open.retries);
            all.saturating_sub(one.open.scheduled)
        });
        Self {
            depth: depth.fold(0, u64::saturating_add),
            age,
        }
    }

    fn advice(self, settings: &AdmissionSettings) -> i32 {
        let age_ms = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        let is_over = |limit: Option<u64>| limit.is_some_and(|limit| age_ms >= limit);
        if self.depth > DEEP || is_over(settings.limit(Measure::Age)) {
            MORE
        } else if self.depth < SHALLOW && !is_over(settings.resume_at(Measure::Age)) {
            FEWER
        } else {
            0
        }
    }
}

/// What a group has to do now.
pub(in crate::service) async fn load(
    context: &Context,
    name: &GroupName,
) -> Result<Load, CallFailure> {
    let group = snapshot(context, name).await?;
    let ages = ages(context, &group).await;
    let oldest = ages.iter().filter_map(|ages| ages.oldest).max();
    Ok(Load::of(&group, oldest.unwrap_or_default()))
}

/// An advice, and when it was given last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Given {
    workers: i32,
    at: MonoMs,
}

/// The advice given last to each group.
#[derive(Debug, Default)]
pub(in crate::service) struct Advices {
    /// Guarded for as long as one look takes.
    given: Mutex<BTreeMap<GroupName, Given>>,
}

impl Advices {
    /// Workers to add or take away. What was advised within the last minute is only repeated, so
    /// that whoever acts on it sees its effect before the next.
    pub(super) fn of(
        &self,
        group: &GroupName,
        (load, settings): (Load, &AdmissionSettings),
        now: MonoMs,
    ) -> i32 {
        let wanted = load.advice(settings);
        if wanted == 0 {
            return 0;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // What is older than the pause says nothing any more.
        given.retain(|_, given| now.since(given.at) < COOLDOWN);
        match given.get_mut(group) {
            Some(last) if last.workers != wanted => 0,
            Some(last) => {
                last.at = now;
                wanted
            }
            None => {
                let workers = wanted;
                given.insert(group.clone(), Given { workers, at: now });
                workers
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(advices: &Advices, depth: u64, at_s: u64) -> i32 {
        let load = Load {
            depth,
            age: Duration::ZERO,
        };
        let group = GroupName::parse("email").unwrap();
        let now = MonoMs(at_s * 1_000);
        advices.of(&group, (load, &AdmissionSettings::default()), now)
    }

    #[test]
    fn t52_a_deep_group_is_to_grow_and_a_shallow_one_to_shrink_but_not_within_a_minute() {
        let advices = Advices::default();
        assert_eq!(advised(&advices, 1_000, 0), 0);
        assert_eq!(advised(&advices, 1_001, 1), 2);
        assert_eq!(advised(&advices, 99, 2), 0);
        assert_eq!(advised(&advices, 1_001, 10), 2, "the same is repeated");
        assert_eq!(advised(&advices, 99, 69), 0);
        assert_eq!(advised(&advices, 99, 70), -1);
        assert_eq!(advised(&advices, 1_001, 71), 0);
        assert_eq!(advised(&advices, 100, 72), 0);
        assert_eq!(advised(&advices, 1_001, 130), 2);
    }

    #[test]
    fn records_past_the_age_limit_call_for_workers_however_few_they_are() {
        let settings = AdmissionSettings {
            age_max_ms: 10_000,
            ..AdmissionSettings::default()
        };
        let advice = |depth, age_ms| {
            let age = Duration::from_millis(age_ms);
            Load { depth, age }.advice(&settings)
        };
        assert_eq!(advice(5, 10_000), 2);
        assert_eq!(advice(5, 9_999), 0, "not fewer so near to the limit");
        assert_eq!(advice(5, 7_999), -1);
        assert_eq!(advice(500, 9_999), 0);
    }

    #[test]
    fn groups_that_are_gone_are_forgotten() {
        let advices = Advices::default();
        let load = Load {
            depth: 0,
            age: Duration::ZERO,
        };
        for number in 0..1_000_u64 {
            let group = GroupName::parse(&format!("g-{number}")).unwrap();
            let now = MonoMs(number * 1_000);
            advices.of(&group, (load, &AdmissionSettings::default()), now);
        }
        assert!(advices.given.lock().unwrap().len() <= 61);
    }
}
