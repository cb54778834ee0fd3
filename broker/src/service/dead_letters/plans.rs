//! Plans: what a call with `validate_only` counted, kept so that the next call does exactly that.
//!
//! They are the edge's own and do not survive a restart: a caller then makes a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::TopicId;

use crate::clock::MonoMs;
use crate::core::dead_letters::Claims;

/// How long a plan is good.
const GOOD_FOR: Duration = Duration::from_mins(10);
/// Plans that are kept; the oldest go first.
const PLANS_MAX: usize = 256;
/// Runs of entries in all plans together.
const RUNS_MAX: usize = 2_000_000;

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Replay,
    Discard,
}

/// Entries that were chosen.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) purpose: Purpose,
    pub(super) queue: TopicId,
    pub(super) claims: Claims,
    pub(super) matched: u64,
    pub(super) skipped: u64,
    /// Of the matched ones, whose keys are not parked.
    pub(super) unparked: u64,
    /// The filter in short.
    pub(super) detail: String,
}

/// A plan in use by one call at a time, with the answer of a discard that was carried out.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) plan: Plan,
    pub(super) is_used: bool,
    pub(super) answer: Option<v1::DiscardDeadLettersResponse>,
}

/// A plan that calls wait for.
pub(super) type Shared = Arc<tokio::sync::Mutex<Kept>>;

#[derive(Debug)]
struct Slot {
    until: MonoMs,
    made: u64,
    runs: usize,
    kept: Shared,
}

/// All plans.
#[derive(Debug, Default)]
pub(in crate::service) struct Plans {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: BTreeMap<String, Slot>,
    made: u64,
}

impl Plans {
    /// Keeps a plan and returns its id.
    pub(super) fn keep(&self, plan: Plan, now: MonoMs) -> String {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.made += 1;
        let slot = Slot {
            until: now.plus(GOOD_FOR),
            made: slots.made,
            runs: plan.claims.run_count(),
            kept: Arc::new(tokio::sync::Mutex::new(Kept {
                plan,
                is_used: false,
                answer: None,
            })),
        };
        slots.by_id.retain(|_, slot| slot.until > now);
        slots.by_id.insert(id.clone(), slot);
        slots.trim();
        id
    }

    /// A plan that is still good, for this purpose and queue.
    pub(super) fn get(&self, id: &str, now: MonoMs) -> Option<Shared> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.by_id.get(id).filter(|slot| slot.until > now)?;
        Some(Arc::clone(&slot.kept))
    }
}

impl Slots {
    /// The oldest go while there are too many; the youngest stays.
    fn trim(&mut self) {
        let runs = |slots: &Self| slots.by_id.values().map(|slot| slot.runs).sum::<usize>();
        while self.by_id.len() > 1 && (self.by_id.len() > PLANS_MAX || runs(self) > RUNS_MAX) {
            let oldest = self.by_id.iter().min_by_key(|(_, slot)| slot.made);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                return;
            };
            self.by_id.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use varvelog_store::Offset;

    use super::*;

    fn plan(runs: u64) -> Plan {
        let mut claims = Claims::new();
        (0..runs).for_each(|run| claims.add(0, Offset::ZERO.plus(2 * run), false));
        Plan {
            purpose: Purpose::Discard,
            queue: TopicId([1; 16]),
            claims,
            matched: runs,
            skipped: 0,
            unparked: 0,
            detail: String::new(),
        }
    }

    #[test]
    fn a_plan_is_good_for_ten_minutes() {
        let plans = Plans::default();
        let id = plans.keep(plan(1), MonoMs(0));
        assert!(plans.get(&id, MonoMs(599_999)).is_some());
        assert!(plans.get(&id, MonoMs(600_000)).is_none());
        assert!(plans.get("unknown", MonoMs(0)).is_none());
    }

    #[test]
    fn the_oldest_plans_go_when_there_are_too_many_or_they_are_too_large() {
        let plans = Plans::default();
        let first = plans.keep(plan(1), MonoMs(0));
        let rest: Vec<String> = (0..256).map(|_| plans.keep(plan(1), MonoMs(0))).collect();
        assert!(plans.get(&first, MonoMs(1)).is_none());
        assert!(rest.iter().all(|id| plans.get(id, MonoMs(1)).is_some()));
        let large = plans.keep(plan(2_000_000), MonoMs(1));
        assert!(plans.get(&large, MonoMs(1)).is_some());
        assert!(plans.get(&rest[255], MonoMs(1)).is_none());
    }
}
