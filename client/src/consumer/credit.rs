//! How much of what the broker gives a consumer may have in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

/// Units that a consumer may have in hand: deliveries, or records where a delivery may take more
/// than one unit.
#[derive(Debug)]
pub(super) struct Credit {
    limit: AtomicU32,
    /// The most units that one delivery takes.
    delivery_max: u32,
    /// Of deliveries that arrived and were not dropped.
    in_hand: AtomicU32,
    /// Told of each unit that comes back.
    pub(super) freed: Notify,
}

impl Credit {
    /// `limit` units, of which one delivery takes at most `delivery_max`. One delivery is always
    /// let in.
    pub(super) fn new(limit: u32, delivery_max: u32) -> Self {
        let delivery_max = delivery_max.max(1);
        Self {
            limit: AtomicU32::new(limit.max(delivery_max)),
            delivery_max,
            in_hand: AtomicU32::new(0),
            freed: Notify::new(),
        }
    }

    /// Deliveries that may be asked for, if `granted` were asked for and have not come.
    pub(super) fn deliveries_left(&self, granted: u32) -> u32 {
        let granted = granted.saturating_mul(self.delivery_max);
        let left = self.limit().saturating_sub(self.in_hand());
        left.saturating_sub(granted) / self.delivery_max
    }

    /// Whether another delivery may be read.
    pub(super) fn has_room(&self) -> bool {
        self.in_hand() < self.limit()
    }

    /// The most deliveries that can be in hand at a time.
    pub(super) fn deliveries_max(&self) -> u32 {
        self.limit()
    }

    /// Of what is full, so many deliveries make up the limit.
    pub(super) fn full_deliveries(&self) -> u32 {
        self.limit() / self.delivery_max
    }

    /// Ask for nothing more.
    pub(super) fn close(&self) {
        self.limit.store(0, Ordering::Relaxed);
    }

    /// A delivery of so many records came.
    pub(super) fn take(self: &Arc<Self>, records: usize) -> InHand {
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        let units = records.clamp(1, self.delivery_max);
        self.in_hand.fetch_add(units, Ordering::Relaxed);
        InHand {
            credit: self.clone(),
            units: AtomicU32::new(units),
        }
    }

    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn in_hand(&self) -> u32 {
        self.in_hand.load(Ordering::Relaxed)
    }
}

/// A delivery's share of the credit.
#[derive(Debug)]
pub(super) struct InHand {
    credit: Arc<Credit>,
    units: AtomicU32,
}

impl InHand {
    /// It needs no more than so many units from now on, and always one while it lasts.
    pub(super) fn keep(&self, units: u32) {
        let units = units.max(1);
        let before = self.units.fetch_min(units, Ordering::Relaxed);
        self.give_back(before.saturating_sub(units));
    }

    fn give_back(&self, units: u32) {
        if units > 0 {
            self.credit.in_hand.fetch_sub(units, Ordering::Relaxed);
            self.credit.freed.notify_one();
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let units = *self.units.get_mut();
        self.give_back(units);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn deliveries_count_one_each_where_they_are_counted() {
        let credit = Arc::new(Credit::new(2, 1));
        assert_eq!(credit.deliveries_left(0), 2);
        let first = credit.take(500);
        assert_eq!(
            (credit.deliveries_left(0), credit.deliveries_left(1)),
            (1, 0)
        );
        let second = credit.take(1);
        assert!(!credit.has_room());
        drop((first, second));
        assert_eq!(credit.deliveries_left(0), 2);
    }

    #[test]
    fn a_delivery_that_is_worked_off_makes_room_before_it_is_dropped() {
        let credit = Arc::new(Credit::new(8, 4));
        let slow = credit.take(4);
        let rest = credit.take(4);
        assert_eq!(credit.deliveries_left(0), 0);
        slow.keep(0);
        assert_eq!(
            credit.deliveries_left(0),
            0,
            "three units are not a whole delivery"
        );
        drop(rest);
        assert_eq!(
            credit.deliveries_left(0),
            1,
            "one unit stays with the one in hand"
        );
    }

    #[test]
    fn nothing_is_asked_for_once_it_is_closed() {
        let credit = Arc::new(Credit::new(8, 4));
        let held = credit.take(4);
        credit.close();
        assert_eq!((credit.deliveries_left(0), credit.has_room()), (0, false));
        drop(held);
        assert_eq!((credit.deliveries_left(0), credit.has_room()), (0, false));
    }

    proptest! {
        #[test]
        fn the_limit_is_never_passed_and_all_of_it_comes_back(
            limit in 1_u32..50, delivery_max in 1_u32..20,
            steps in prop::collection::vec((any::<bool>(), 0_usize..30, 0_u32..30), 1..60),
        ) {
            let credit = Arc::new(Credit::new(limit, delivery_max));
            let limit = limit.max(delivery_max);
            let mut held = Vec::new();
            for (arrives, records, keep) in steps {
                if arrives && credit.deliveries_left(0) > 0 {
                    held.push(credit.take(records));
                } else if let Some(first) = held.first() {
                    first.keep(keep);
                    if keep % 2 == 0 {
                        held.remove(0);
                    }
                }
                prop_assert!(credit.in_hand() <= limit);
                let units: u32 = held
                    .iter()
                    .map(|share: &InHand| share.units.load(Ordering::Relaxed))
                    .sum();
                prop_assert_eq!(units, credit.in_hand());
            }
            drop(held);
            prop_assert_eq!(credit.deliveries_left(0), limit / delivery_max);
        }
    }
}
