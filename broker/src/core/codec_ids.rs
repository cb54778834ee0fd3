//! Message ids of a part.

use super::fields::{FieldError, FieldReader, FieldWriter};
use super::message_ids::{FirstAppend, PartIds, Repeated};
use super::topic_changes::TOPIC_PARTITIONS_MAX;

pub(super) fn put_part_ids(out: &mut FieldWriter, ids: &PartIds) {
    let PartIds { fresh, repeated } = ids;
    out.count(fresh.len());
    for (number, hash) in fresh {
        out.u32(*number);
        out.id_hash(*hash);
    }
    out.count(repeated.len());
    for it in repeated {
        out.u32(it.number);
        out.id_hash(it.hash);
        out.u32(it.first.partition);
        out.offset(it.first.offset);
    }
}

pub(super) fn part_ids(
    fields: &mut FieldReader<'_>,
    record_count: u32,
) -> Result<PartIds, FieldError> {
    let fresh = fields.list(20, |each| Ok((each.u32()?, each.id_hash()?)))?;
    let within = fresh.last().is_none_or(|last| last.0 < record_count);
    if !within || !fresh.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(FieldError::Value("message ids are not of rising records"));
    }
    let repeated = fields.list(32, |each| {
        Ok(Repeated {
            number: each.u32()?,
            hash: each.id_hash()?,
            first: FirstAppend {
                partition: each.u32()?,
                offset: each.offset()?,
            },
        })
    })?;
    let there = |it: &Repeated| it.first.partition < TOPIC_PARTITIONS_MAX;
    if !repeated.iter().all(there) || !repeated.is_sorted_by(|a, b| a.number < b.number) {
        return Err(FieldError::Value("repeated records do not rise"));
    }
    Ok(PartIds { fresh, repeated })
}
