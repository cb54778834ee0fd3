//! Which partition a record goes to.

use varvelog_store::batch::partition_for_key;

/// Chooses partitions for one topic: the record's own, else by key, else one that stays the same
/// until its batch is full, so that records without a key fill batches too.
#[derive(Debug)]
pub(crate) struct Partitioner {
    partitions: u32,
    sticky: u32,
}

impl Partitioner {
    /// For a topic of `partitions` (0 counts as 1); `draw` chooses the first.
    pub(crate) fn new(partitions: u32, draw: u32) -> Self {
        let partitions = partitions.max(1);
        Self {
            partitions,
            sticky: draw % partitions,
        }
    }

    /// The topic has `partitions` now.
    pub(crate) fn resize(&mut self, partitions: u32) {
        self.partitions = partitions.max(1);
        self.sticky %= self.partitions;
    }

    pub(crate) fn choose(&self, explicit: Option<u32>, key: Option<&[u8]>) -> u32 {
        match (explicit, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_for_key(key, self.partitions),
            (None, None) => self.sticky,
        }
    }

    /// The batch of `partition` is full: records without a key go elsewhere, if there is
    /// elsewhere.
    pub(crate) fn batch_sealed(&mut self, partition: u32, draw: u32) {
        if partition == self.sticky && self.partitions > 1 {
            let step = 1 + draw % (self.partitions - 1);
            self.sticky = (self.sticky + step) % self.partitions;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_records_own_partition_goes_before_its_key() {
        let partitioner = Partitioner::new(6, 0);
        assert_eq!(partitioner.choose(Some(5), Some(b"k")), 5);
        assert_eq!(
            partitioner.choose(None, Some(b"k")),
            partition_for_key(b"k", 6)
        );
    }

    #[test]
    fn other_batches_do_not_move_the_sticky_partition() {
        let mut partitioner = Partitioner::new(6, 2);
        partitioner.batch_sealed(3, 0);
        assert_eq!(partitioner.choose(None, None), 2);
    }

    proptest! {
        #[test]
        fn a_full_batch_moves_on_within_the_topic(partitions in 0_u32..50, first: u32, draw: u32) {
            let mut partitioner = Partitioner::new(partitions, first);
            let before = partitioner.choose(None, None);
            partitioner.batch_sealed(before, draw);
            let after = partitioner.choose(None, None);
            prop_assert!(after < partitions.max(1));
            prop_assert_eq!(before != after, partitions > 1);
        }
    }
}
