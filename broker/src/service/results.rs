//! `AppendResult`s: what became of records and batches.

use varvelog_proto::v1;

use super::transcode::RecordsIn;
use crate::core::request::{Appended, PartAppended, Repeat};

/// Where the records of a request went: which part, and which place in it.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In request order.
    at: Vec<(u32, u32)>,
    /// Records whose message id came before in the request, rising.
    repeated: Vec<u32>,
}

impl Places {
    /// Adds the records of a request, or an output, whose parts come behind `parts` others.
    pub(super) fn add(&mut self, made: &RecordsIn, parts: usize) {
        let before = narrow(parts);
        let records = narrow(self.at.len());
        let places = made.places.iter();
        self.at
            .extend(places.map(|(part, place)| (before + part, *place)));
        let repeated = made.repeated.iter();
        self.repeated.extend(repeated.map(|it| records + it));
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// One for each batch, in order.
pub(super) fn of_batches(parts: &[PartAppended]) -> Vec<v1::AppendResult> {
    parts.iter().map(|part| result(part, 0)).collect()
}

/// One for each record, in request order.
pub(super) fn of_records(places: &Places, appended: &Appended) -> Vec<v1::AppendResult> {
    let mut repeated = places.repeated.iter().copied().peekable();
    let of_record = |(number, place): (u32, &(u32, u32))| {
        let mut result = of_record(*place, appended)?;
        result.duplicate |= repeated.next_if_eq(&number).is_some();
        Some(result)
    };
    (0_u32..).zip(&places.at).filter_map(of_record).collect()
}

fn of_record((part, place): (u32, u32), appended: &Appended) -> Option<v1::AppendResult> {
    let repeats = &appended.repeats;
    let found = repeats.binary_search_by_key(&(part, place), |it| (it.part, it.number));
    match found {
        Ok(at) => repeats.get(at).map(repeat),
        Err(at) => {
            // Those before it that are not in the batch.
            let of_part = repeats.partition_point(|it| it.part < part);
            let before = narrow(at - of_part);
            let of_record = appended.parts.get(usize::try_from(part).ok()?)?;
            Some(result(of_record, place.saturating_sub(before)))
        }
    }
}

fn repeat(repeat: &Repeat) -> v1::AppendResult {
    v1::AppendResult {
        partition: i32::try_from(repeat.partition).unwrap_or(i32::MAX),
        offset: repeat.offset.as_i64(),
        epoch: repeat.epoch.as_i32(),
        duplicate: true,
    }
}

fn result(part: &PartAppended, place: u32) -> v1::AppendResult {
    v1::AppendResult {
        partition: i32::try_from(part.partition.partition).unwrap_or(i32::MAX),
        offset: part.base_offset.plus(u64::from(place)).as_i64(),
        epoch: part.epoch.as_i32(),
        duplicate: part.duplicate,
    }
}
