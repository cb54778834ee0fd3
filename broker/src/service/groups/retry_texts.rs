//! What headers of copies in retry and dead-letter topics say of the last failure.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::batch::RecordRef;
use varvelog_store::{Offset, PartitionId};

use crate::core::reserved_headers::{ReservedHeader, ReservedHeaders};
use crate::service::context::Context;
use crate::service::read::{OpenBatch, record_at};

/// Code and message of each of these records; those that cannot be read are left out.
pub(in crate::service) async fn read(
    context: &Context,
    wanted: &BTreeSet<(PartitionId, Offset)>,
) -> BTreeMap<(PartitionId, Offset), (String, String)> {
    let catalog = context.view().catalog();
    let mut texts = BTreeMap::new();
    // Neighbours often lie in one batch.
    let mut open: Option<(PartitionId, OpenBatch)> = None;
    for (id, offset) in wanted {
        let topic = catalog.by_id.get(&id.topic);
        let number = usize::try_from(id.partition).unwrap_or(usize::MAX);
        let Some(partition) = topic.and_then(|topic| topic.partitions.get(number)) else {
            continue;
        };
        let has = |(of, batch): &(PartitionId, OpenBatch)| of == id && batch.holds(*offset);
        if !open.as_ref().is_some_and(has) {
            open = match record_at(partition, *offset).await {
                Ok(batch) => batch.map(|batch| (*id, batch)),
                Err(error) => {
                    tracing::warn!(%error, partition = %id, %offset, "a copy cannot be read");
                    None
                }
            };
        }
        if let Some(record) = open.as_ref().and_then(|(_, batch)| batch.find(*offset)) {
            texts.insert((*id, *offset), text(&record));
        }
    }
    texts
}

fn text(record: &RecordRef<'_>) -> (String, String) {
    let headers = ReservedHeaders::of(record.headers);
    let text = |header| headers.text(header).unwrap_or_default().to_owned();
    (
        text(ReservedHeader::ErrorCode),
        text(ReservedHeader::ErrorMessage),
    )
}
