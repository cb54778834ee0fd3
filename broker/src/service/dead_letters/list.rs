//! `ListDeadLetters`.

use std::collections::BinaryHeap;

use prost::Message as _;
use varvelog_proto::v1;
use varvelog_store::{Offset, WallMs};

use super::entries;
use super::filter::{Filter, Judged};
use super::letter::{Letter, Show};
use super::queues;
use crate::core::dead_letters::{JobNumber, Queue};
use crate::core::reserved_headers::ReservedHeaders;
use crate::service::checks;
use crate::service::context::Context;
use crate::service::read::{OpenBatch, record_at};
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::transcode::RECORD_REPLY_BYTES_MAX;
use crate::view::TopicView;

const PAGE_SIZE: (u32, u32) = (100, 1_000);
/// Entries that are asked of the core at once.
const CANDIDATES_MAX: usize = 1_000;
/// Records that are read for one page; what a filter takes may lie far apart.
const READS_MAX: usize = 10_000;

/// The order of the list, oldest first: by time of death, partition and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    died: WallMs,
    partition: u32,
    offset: Offset,
}

/// Where a page begins, and which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    after: Option<Key>,
    newest_first: bool,
}

/// `ListDeadLetters`.
pub(super) async fn list(
    context: &Context,
    request: v1::ListDeadLettersRequest,
) -> Result<v1::ListDeadLettersResponse, CallFailure> {
    let topic = queues::find(context, &request.queue)?;
    let filter = Filter::read(request.filter.as_ref())?;
    let size = checks::count("page_size", request.page_size, PAGE_SIZE)?;
    let mut cursor = Cursor::read(&request.page_token, request.newest_first)?;
    let mut page = Page {
        letters: Vec::new(),
        bytes: 0,
        size: usize::try_from(size).unwrap_or(usize::MAX),
        reads_left: READS_MAX,
        open: None,
        show: Show {
            value: !request.omit_values,
            stack: request.with_stack,
        },
    };
    loop {
        let found = candidates(context, &topic, (&filter, cursor)).await?;
        let is_last = found.len() < CANDIDATES_MAX;
        let is_full = page.take(&topic, &filter, (found, &mut cursor)).await;
        if is_full || is_last {
            return Ok(v1::ListDeadLettersResponse {
                letters: page.letters,
                next_page_token: if is_full {
                    cursor.token()
                } else {
                    String::new()
                },
            });
        }
    }
}

/// The next entries that may be wanted, in order.
async fn candidates(
    context: &Context,
    topic: &TopicView,
    (filter, cursor): (&Filter, Cursor),
) -> Result<Vec<Ranked>, CallFailure> {
    let filter = filter.clone();
    let look = move |queue: &Queue, partition: u32, made: &mut BinaryHeap<Ranked>| {
        if !filter.passes_over(partition) {
            rank(queue, partition, (&filter, cursor), made);
        }
    };
    let made = entries::fold(context, topic.id, BinaryHeap::new(), look).await?;
    Ok(made.into_sorted_vec())
}

/// A key by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranked {
    key: Key,
    job: Option<JobNumber>,
    newest_first: bool,
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = self.key.cmp(&other.key);
        if self.newest_first {
            order.reverse()
        } else {
            order
        }
    }
}

fn rank(
    queue: &Queue,
    partition: u32,
    (filter, cursor): (&Filter, Cursor),
    made: &mut BinaryHeap<Ranked>,
) {
    let mut causes = Judged::new(filter, queue);
    for (offset, entry) in queue.entries(partition) {
        let key = Key {
            died: entry.died,
            partition,
            offset,
        };
        let ranked = cursor.ranked(key, entry.job);
        let is_late = made.len() == CANDIDATES_MAX && made.peek().is_some_and(|it| *it < ranked);
        let is_next = cursor
            .after
            .is_none_or(|after| ranked > cursor.ranked(after, entry.job));
        if is_late || !is_next || !filter.may_take((partition, offset), entry, &mut causes) {
            continue;
        }
        made.push(ranked);
        if made.len() > CANDIDATES_MAX {
            made.pop();
        }
    }
}

/// A page in the making.
struct Page {
    letters: Vec<v1::DeadLetter>,
    bytes: usize,
    size: usize,
    reads_left: usize,
    /// The batch that was read last: neighbours often lie in one.
    open: Option<(u32, OpenBatch)>,
    show: Show,
}

impl Page {
    /// Takes what is wanted of these, and moves the cursor behind the last that was looked at.
    /// True if there may be more, but not on this page.
    async fn take(
        &mut self,
        topic: &TopicView,
        filter: &Filter,
        (found, cursor): (Vec<Ranked>, &mut Cursor),
    ) -> bool {
        for Ranked { key, job, .. } in found {
            if self.letters.len() == self.size || self.reads_left == 0 {
                return true;
            }
            self.reads_left -= 1;
            if let Some(letter) = self.read(topic, filter, (key, job)).await {
                let bytes = letter.encoded_len() + FIELD_BYTES_MAX;
                if !self.letters.is_empty() && self.bytes + bytes > RECORD_REPLY_BYTES_MAX {
                    return true;
                }
                self.bytes += bytes;
                self.letters.push(letter);
            }
            cursor.after = Some(key);
        }
        false
    }

    /// The entry, if it is wanted. One that cannot be read is left out.
    async fn read(
        &mut self,
        topic: &TopicView,
        filter: &Filter,
        (key, job): (Key, Option<JobNumber>),
    ) -> Option<v1::DeadLetter> {
        let number = usize::try_from(key.partition).ok()?;
        let partition = topic.partitions.get(number)?;
        let has = |(of, batch): &(u32, OpenBatch)| *of == key.partition && batch.holds(key.offset);
        if !self.open.as_ref().is_some_and(has) {
            self.open = match record_at(partition, key.offset).await {
                Ok(batch) => batch.map(|batch| (key.partition, batch)),
                Err(error) => {
                    let offset = key.offset;
                    tracing::warn!(%error, partition = %partition.id, %offset,
                        "a dead letter cannot be read");
                    None
                }
            };
        }
        let (_, batch) = self.open.as_ref()?;
        let record = batch.find(key.offset)?;
        let said = ReservedHeaders::of(record.headers);
        if !filter.takes(record.key, &said) {
            return None;
        }
        let letter = Letter {
            group: topic.derived.as_ref()?.as_str(),
            partition: key.partition,
            offset: key.offset,
            append_time: batch.append_time(),
            record,
            said,
            job,
        };
        let shown = letter.shown(self.show);
        if shown.encoded_len() <= RECORD_REPLY_BYTES_MAX {
            return Some(shown);
        }
        Some(letter.shown(Show {
            value: false,
            ..self.show
        }))
    }
}

/// What a letter takes beside its content: the field's tag and length.
const FIELD_BYTES_MAX: usize = 6;
/// Tells the version of a token; the letter behind it, the direction.
const TOKEN_PREFIX: &str = "d1";

impl Cursor {
    fn read(token: &str, newest_first: bool) -> Result<Self, FieldViolation> {
        let read = || {
            let parts = token.split(':').collect::<Vec<_>>();
            let [prefix, direction, died, partition, offset] = parts.try_into().ok()?;
            let is_ours = prefix == TOKEN_PREFIX && direction == Self::direction(newest_first);
            is_ours.then_some(())?;
            Some(Key {
                died: WallMs(died.parse().ok()?),
                partition: partition.parse().ok()?,
                offset: Offset::new(offset.parse().ok()?)?,
            })
        };
        let after = match token {
            "" => None,
            _ => Some(
                read().ok_or_else(|| FieldViolation::new("page_token", "is none of this list"))?,
            ),
        };
        Ok(Self {
            after,
            newest_first,
        })
    }

    fn token(self) -> String {
        let direction = Self::direction(self.newest_first);
        let after = self.after.map(|after| {
            let Key {
                died,
                partition,
                offset,
            } = after;
            format!("{TOKEN_PREFIX}:{direction}:{}:{partition}:{offset}", died.0)
        });
        after.unwrap_or_default()
    }

    fn direction(newest_first: bool) -> &'static str {
        if newest_first { "newest" } else { "oldest" }
    }

    fn ranked(self, key: Key, job: Option<JobNumber>) -> Ranked {
        Ranked {
            key,
            job,
            newest_first: self.newest_first,
        }
    }
}
