//! Who is given something next.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::durable::{Durable, GroupFacts};
use super::feed::GRANT_RECORDS_MAX;
use super::group::Group;
use super::member::MemberKey;
use super::turn::Turn;
use crate::core::settings::GroupMode;

impl Group {
    /// Gives out what there is to members that have room for it.
    pub(super) fn pump<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        if self.mode == GroupMode::Queue {
            self.pump_queue(turn);
            return;
        }
        while let Some(key) = self.awake.pop_first() {
            while self.grant_next(turn, key) {}
        }
    }

    /// One grant a member, round and round, while there is something to give.
    fn pump_queue<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let mut passed = BTreeSet::new();
        while !self.ready.is_empty()
            && let Some(key) = self.next_hungry(&passed)
        {
            if self.grant_next(turn, key) {
                self.served = Some(key);
            } else {
                passed.insert(key);
            }
        }
    }

    /// The next member with room, behind the one that was served last. Those without are woken
    /// when they get some.
    fn next_hungry(&mut self, passed: &BTreeSet<MemberKey>) -> Option<MemberKey> {
        let has_room = |key: MemberKey| {
            let member = self.members.get(&key);
            member.is_some_and(|member| member.open_stream().is_some())
        };
        let behind = (
            self.served.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let before = self.served.map(|served| self.awake.range(..=served));
        let all = self.awake.range(behind).chain(before.into_iter().flatten());
        let mut full = Vec::new();
        let mut found = None;
        for key in all.copied().filter(|key| !passed.contains(key)) {
            if has_room(key) {
                found = Some(key);
                break;
            }
            full.push(key);
        }
        for key in full {
            self.awake.remove(&key);
        }
        found
    }

    /// Most records that a member is given in one go of a partition that has so many to give. In
    /// a queue, while others are hungry too, no more than leaves them as many.
    pub(super) fn fair_most(&self, key: MemberKey, facts: &GroupFacts<'_>, waiting: u64) -> u64 {
        if self.mode == GroupMode::Stream {
            return GRANT_RECORDS_MAX;
        }
        let wanted = self
            .members
            .get(&key)
            .map_or(1, |member| member.records_max);
        let hungry = u64::try_from(self.awake.len()).unwrap_or(u64::MAX);
        if hungry < 2 {
            return wanted;
        }
        let fair = u64::from(facts.settings.in_flight_max) / hungry;
        let share = waiting.div_ceil(hungry);
        wanted.min(fair.max(1)).min(share.max(1))
    }
}
