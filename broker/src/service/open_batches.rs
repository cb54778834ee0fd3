//! Batches that were read in part and will be read on: who is given records one by one must not
//! have the whole batch read, checked and decompressed for each of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use varvelog_store::batch::Records;
use varvelog_store::{Offset, PartitionId, WallMs};

/// Batches that are kept, whatever their sizes.
const BATCHES_MAX: usize = 1_024;

/// A batch whose records are at hand.
#[derive(Debug)]
pub(super) struct OpenRecords {
    pub(super) base_offset: Offset,
    /// One past its last record.
    pub(super) end: Offset,
    pub(super) append_time: WallMs,
    pub(super) records: Records,
}

/// The last batch of each partition that was read in part; the longest kept go first.
#[derive(Debug)]
pub(super) struct OpenBatches {
    bytes_max: usize,
    /// Held for one look.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_partition: HashMap<PartitionId, Arc<OpenRecords>>,
    /// Each partition once, the longest kept first.
    order: VecDeque<PartitionId>,
    bytes: usize,
}

impl OpenBatches {
    /// Keeps up to `bytes_max` bytes of records; a larger batch is not kept.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// The batch that holds the record at `offset`, if it is kept.
    pub(super) fn find(&self, partition: PartitionId, offset: Offset) -> Option<Arc<OpenRecords>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = kept.by_partition.get(&partition)?;
        let holds = batch.base_offset <= offset && offset < batch.end;
        holds.then(|| Arc::clone(batch))
    }

    /// Keeps a batch in place of the partition's last one.
    pub(super) fn keep(&self, partition: PartitionId, batch: OpenRecords) {
        let bytes = batch.records.plain_bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        match kept.by_partition.insert(partition, Arc::new(batch)) {
            Some(before) => kept.bytes -= before.records.plain_bytes(),
            None => kept.order.push_back(partition),
        }
        while (kept.bytes > self.bytes_max || kept.order.len() > BATCHES_MAX)
            && let Some(oldest) = kept.order.pop_front()
        {
            if let Some(gone) = kept.by_partition.remove(&oldest) {
                kept.bytes -= gone.records.plain_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use varvelog_store::TopicId;
    use varvelog_store::batch::{BatchBuilder, Codec};

    use super::*;

    fn partition(number: u32) -> PartitionId {
        PartitionId {
            topic: TopicId([1; 16]),
            partition: number,
        }
    }

    fn batch(base: u64, value_bytes: usize) -> OpenRecords {
        let mut builder = BatchBuilder::new(Codec::Lz4, 1 << 20);
        let none = std::iter::empty::<(&[u8], Option<&[u8]>)>();
        let value = vec![0; value_bytes];
        builder.push(None, None, Some(&value), none).unwrap();
        let base_offset = Offset::new(base).unwrap();
        OpenRecords {
            base_offset,
            end: base_offset.plus(1),
            append_time: WallMs(0),
            records: Records::open(&builder.finish().unwrap(), 1 << 20).unwrap(),
        }
    }

    #[test]
    fn a_partition_has_its_last_batch_and_all_have_no_more_bytes_than_there_may_be() {
        let batches = OpenBatches::new(10_000);
        let found = |number, offset| {
            let found = batches.find(partition(number), Offset::new(offset).unwrap());
            found.is_some()
        };
        batches.keep(partition(0), batch(5, 3_000));
        assert!(found(0, 5) && !found(0, 4) && !found(0, 6) && !found(1, 5));
        batches.keep(partition(0), batch(6, 3_000));
        assert!(found(0, 6) && !found(0, 5));
        batches.keep(partition(1), batch(0, 3_000));
        batches.keep(partition(2), batch(0, 3_000));
        assert!(found(0, 6) && found(1, 0) && found(2, 0));
        batches.keep(partition(3), batch(0, 3_000));
        assert!(!found(0, 6) && found(1, 0) && found(2, 0) && found(3, 0));
        batches.keep(partition(4), batch(0, 11_000));
        assert!(!found(4, 0) && found(1, 0), "too large to be kept");
        let kept = batches.kept.lock().unwrap();
        let bytes = kept.by_partition.values();
        let bytes: usize = bytes.map(|batch| batch.records.plain_bytes()).sum();
        assert_eq!(
            (kept.bytes, kept.order.len()),
            (bytes, kept.by_partition.len())
        );
    }

    #[test]
    fn no_more_batches_are_kept_than_there_may_be() {
        let batches = OpenBatches::new(usize::MAX);
        for number in 0..=u32::try_from(BATCHES_MAX).unwrap() {
            batches.keep(partition(number), batch(0, 1));
        }
        assert!(batches.find(partition(0), Offset::ZERO).is_none());
        assert!(batches.find(partition(1), Offset::ZERO).is_some());
    }
}
