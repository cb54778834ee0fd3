//! Which entries are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use varvelog_proto::v1;
use varvelog_store::{Offset, WallMs};

use crate::core::dead_letters::{Cause, Entry, Queue};
use crate::core::failure::{DeadReason, ErrorClass};
use crate::core::reserved_headers::{ReservedHeader, ReservedHeaders};
use crate::service::status::FieldViolation;

/// Most entries, or messages, that a filter names.
const NAMED_MAX: usize = 10_000;
/// Most items of its other lists.
const ITEMS_MAX: usize = 1_000;
/// Items of a list that the audit shows.
const LISTED_MAX: usize = 5;

/// A filter, checked. What is empty holds for all.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    codes: Vec<String>,
    fingerprints: BTreeSet<u64>,
    classes: BTreeSet<ErrorClass>,
    reasons: BTreeSet<DeadReason>,
    died: (Option<WallMs>, Option<WallMs>),
    key: Option<Bytes>,
    ids: BTreeSet<(u32, Offset)>,
    message: String,
    partitions: BTreeSet<u32>,
    message_ids: BTreeSet<String>,
    replays_max: Option<u32>,
}

impl Filter {
    /// Reads the field `filter` of a request.
    pub(super) fn read(filter: Option<&v1::DeadLetterFilter>) -> Result<Self, FieldViolation> {
        let Some(filter) = filter else {
            return Ok(Self::default());
        };
        let after = time("filter.died_after_time", filter.died_after_time.as_ref())?;
        let before = time("filter.died_before_time", filter.died_before_time.as_ref())?;
        few("filter.ids", filter.ids.len(), NAMED_MAX)?;
        few("filter.message_ids", filter.message_ids.len(), NAMED_MAX)?;
        few("filter.error_codes", filter.error_codes.len(), ITEMS_MAX)?;
        let replays_max = filter.max_replay_count.map(|count| {
            u32::try_from(count).map_err(|_negative| {
                let field = "filter.max_replay_count";
                FieldViolation::bound(field, 0, count, "must not be negative")
            })
        });
        Ok(Self {
            codes: filter.error_codes.clone(),
            fingerprints: each("filter.fingerprints", &filter.fingerprints, |hex| {
                fingerprint(hex)
            })?,
            classes: each("filter.error_classes", &filter.error_classes, |name| {
                ErrorClass::parse(name)
            })?,
            reasons: each("filter.reasons", &filter.reasons, |name| {
                DeadReason::parse(name)
            })?,
            died: (after, before),
            key: filter.key.clone(),
            ids: each("filter.ids", &filter.ids, place)?,
            message: filter.message_contains.clone(),
            partitions: each("filter.partitions", &filter.partitions, |number| {
                u32::try_from(*number).ok()
            })?,
            message_ids: filter.message_ids.iter().cloned().collect(),
            replays_max: replays_max.transpose()?,
        })
    }

    /// Whether no entry of a partition is wanted.
    pub(super) fn passes_over(&self, partition: u32) -> bool {
        let is_named = self.ids.is_empty() || {
            let first = self.ids.range((partition, Offset::ZERO)..).next();
            first.is_some_and(|(of, _)| *of == partition)
        };
        !(is_named && holds(&self.partitions, |it| it.contains(&partition)))
    }

    /// Whether the entry may be wanted, as far as it is known without its record.
    pub(super) fn may_take(
        &self,
        (partition, offset): (u32, Offset),
        entry: &Entry,
        causes: &mut Judged<'_>,
    ) -> bool {
        let (after, before) = self.died;
        after.is_none_or(|after| entry.died >= after)
            && before.is_none_or(|before| entry.died < before)
            && holds(&self.ids, |ids| ids.contains(&(partition, offset)))
            && self.replays_max.is_none_or(|most| entry.replays <= most)
            && causes.may_take(entry.cause)
    }

    /// Whether only the record tells whether an entry that may be wanted is; `is_told` says
    /// whether its cause is told apart from others.
    pub(super) fn needs_record(&self, is_told: bool) -> bool {
        let asks_cause =
            !(self.codes.is_empty() && self.classes.is_empty() && self.fingerprints.is_empty());
        let asks_record = !(self.reasons.is_empty()
            && self.key.is_none()
            && self.message.is_empty()
            && self.message_ids.is_empty());
        asks_record || (asks_cause && !is_told)
    }

    /// Whether an entry that may be wanted is, as its record says.
    pub(super) fn takes(&self, key: Option<&[u8]>, said: &ReservedHeaders<'_>) -> bool {
        let text = |header| said.text(header).unwrap_or_default();
        let reason = DeadReason::parse(text(ReservedHeader::DeadReason));
        let replays = said.count(ReservedHeader::ReplayCount).unwrap_or(0);
        self.takes_cause(&cause(said))
            && holds(&self.reasons, |all| {
                reason.is_some_and(|it| all.contains(&it))
            })
            && self.key.as_deref().is_none_or(|wanted| key == Some(wanted))
            && text(ReservedHeader::ErrorMessage).contains(&self.message)
            && holds(&self.message_ids, |all| {
                all.contains(text(ReservedHeader::MessageId))
            })
            && self.replays_max.is_none_or(|most| replays <= most)
    }

    fn takes_cause(&self, cause: &Cause) -> bool {
        let is_code = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => cause.code.starts_with(prefix),
            None => *wanted == cause.code,
        };
        let class = |all: &BTreeSet<_>| cause.class.is_some_and(|it| all.contains(&it));
        let print = |all: &BTreeSet<_>| cause.fingerprint.is_some_and(|it| all.contains(&it));
        (self.codes.is_empty() || self.codes.iter().any(is_code))
            && holds(&self.classes, class)
            && holds(&self.fingerprints, print)
    }
}

impl fmt::Display for Filter {
    /// For the audit, in short: no payloads, and of long lists only how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told: Vec<String> = Vec::new();
        let mut list = |name: &str, items: Vec<String>| {
            if items.len() > LISTED_MAX {
                told.push(format!("{name}={} of them", items.len()));
            } else if !items.is_empty() {
                told.push(format!("{name}={}", items.join(",")));
            }
        };
        let hex = self
            .fingerprints
            .iter()
            .map(|print| format!("{print:016x}"));
        let classes = self.classes.iter().map(|class| class.as_str().to_owned());
        let reasons = self.reasons.iter().map(|it| it.as_str().to_owned());
        let ids = self.ids.iter().map(|(at, offset)| format!("{at}/{offset}"));
        list("codes", self.codes.clone());
        list("fingerprints", hex.collect());
        list("classes", classes.collect());
        list("reasons", reasons.collect());
        list("ids", ids.collect());
        list(
            "partitions",
            self.partitions.iter().map(u32::to_string).collect(),
        );
        list("message_ids", self.message_ids.iter().cloned().collect());
        let (after, before) = self.died;
        list(
            "died_after_ms",
            after.iter().map(|at| at.0.to_string()).collect(),
        );
        list(
            "died_before_ms",
            before.iter().map(|at| at.0.to_string()).collect(),
        );
        list(
            "key_bytes",
            self.key.iter().map(|key| key.len().to_string()).collect(),
        );
        list(
            "max_replay_count",
            self.replays_max.iter().map(u32::to_string).collect(),
        );
        if !self.message.is_empty() {
            list("message_contains", vec![self.message.clone()]);
        }
        if told.is_empty() {
            return f.write_str("all");
        }
        f.write_str(&told.join(" "))
    }
}

/// Causes of a queue, each judged once.
pub(super) struct Judged<'q> {
    filter: &'q Filter,
    queue: &'q Queue,
    by_number: BTreeMap<u32, bool>,
}

impl<'q> Judged<'q> {
    pub(super) fn new(filter: &'q Filter, queue: &'q Queue) -> Self {
        Self {
            filter,
            queue,
            by_number: BTreeMap::new(),
        }
    }

    /// Of those that are not told apart any may be wanted.
    fn may_take(&mut self, number: u32) -> bool {
        let (filter, queue) = (self.filter, self.queue);
        *self.by_number.entry(number).or_insert_with(|| {
            let cause = queue.causes().get(number);
            cause.is_none_or(|cause| filter.takes_cause(cause))
        })
    }
}

/// What a record says it died of.
fn cause(said: &ReservedHeaders<'_>) -> Cause {
    let text = |header| said.text(header).unwrap_or_default();
    Cause {
        class: ErrorClass::parse(text(ReservedHeader::ErrorClass)),
        code: text(ReservedHeader::ErrorCode).to_owned(),
        fingerprint: fingerprint(text(ReservedHeader::ErrorFingerprint)),
    }
}

/// Whether nothing is wanted in particular, or this is.
fn holds<T>(wanted: &BTreeSet<T>, is_wanted: impl Fn(&BTreeSet<T>) -> bool) -> bool {
    wanted.is_empty() || is_wanted(wanted)
}

fn few(field: &str, count: usize, most: usize) -> Result<(), FieldViolation> {
    if count <= most {
        return Ok(());
    }
    let what = format!("at most {most} are allowed");
    Err(FieldViolation::bound(field, most, count, what))
}

fn each<T, U: Ord>(
    field: &str,
    items: &[T],
    read: impl Fn(&T) -> Option<U>,
) -> Result<BTreeSet<U>, FieldViolation> {
    few(field, items.len(), NAMED_MAX)?;
    let wrong = |index| FieldViolation::new(format!("{field}[{index}]"), "is none that there is");
    let each = items.iter().enumerate();
    each.map(|(index, item)| read(item).ok_or_else(|| wrong(index)))
        .collect()
}

fn fingerprint(hex: &str) -> Option<u64> {
    let is_hex = hex.len() == 16 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(hex, 16).ok()).flatten()
}

fn place(id: &v1::DeadLetterId) -> Option<(u32, Offset)> {
    Some((
        u32::try_from(id.partition).ok()?,
        Offset::from_i64(id.offset)?,
    ))
}

/// A time in milliseconds, rounded up: those at or after it are the same.
fn time(
    field: &str,
    time: Option<&prost_types::Timestamp>,
) -> Result<Option<WallMs>, FieldViolation> {
    let Some(time) = time else { return Ok(None) };
    let read = || {
        let nanos = u32::try_from(time.nanos).ok()?;
        let ms = time.seconds.checked_mul(1_000)?;
        let within = (nanos < 1_000_000_000).then(|| nanos.div_ceil(1_000_000))?;
        ms.checked_add(i64::from(within)).map(WallMs)
    };
    let refused = || FieldViolation::new(field, "is no time");
    Ok(Some(read().ok_or_else(refused)?))
}
