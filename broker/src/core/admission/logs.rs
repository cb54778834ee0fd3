//! What only the logs know: what a partition has so far, as one begins to watch it.

use std::sync::Arc;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::ledger::Ledger;
use crate::core::applier::Applier;
use crate::traffic::Traffic;

/// Logs of partitions.
pub trait Logs {
    /// What a partition has from its start on. Reads no file.
    fn ledger(&self, partition: PartitionId) -> Ledger;

    /// Where requests to a topic are counted.
    fn traffic(&self, topic: TopicId) -> Option<Arc<Traffic>>;
}

impl Logs for Applier {
    fn traffic(&self, topic: TopicId) -> Option<Arc<Traffic>> {
        let catalog = self.view().catalog();
        Some(Arc::clone(&catalog.by_id.get(&topic)?.traffic))
    }

    fn ledger(&self, partition: PartitionId) -> Ledger {
        let mut ledger = Ledger::default();
        let Some(reader) = self.reader(partition) else {
            return ledger;
        };
        let (start, end) = (reader.start(), reader.end());
        let mut next = start;
        for segment in reader.segments() {
            // The first one may begin below the start.
            let records = segment.end.since(segment.base).max(1);
            let kept = segment.end.since(segment.base.max(start).min(segment.end));
            let bytes = u128::from(segment.bytes) * u128::from(kept) / u128::from(records);
            if kept > 0 {
                ledger.add(
                    (segment.base.max(start), segment.end),
                    (segment.append_time_min, segment.append_time_max),
                    u64::try_from(bytes).unwrap_or(0),
                    Offset::ZERO,
                );
                next = segment.end;
            }
        }
        if next < end {
            let time_at = |at| reader.append_time_at(at).ok().flatten().unwrap_or_default();
            let in_memory = |at: Offset| reader.is_in_memory(at).then(|| time_at(at));
            let first = in_memory(next).unwrap_or_default();
            let last = in_memory(end.minus(1)).unwrap_or(first);
            let bytes = reader.unflushed_bytes();
            ledger.add((next, end), (first, last), bytes, Offset::ZERO);
        }
        ledger
    }
}
