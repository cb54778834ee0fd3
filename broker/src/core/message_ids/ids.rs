//! The ids of all topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use varvelog_store::{TopicId, WallMs};

use super::id_hash::IdHash;
use super::window::{FirstAppend, Live, Slot, Window};
use crate::core::fields::FieldWriter;

/// Most ids that a topic may remember, whatever the configured limit.
pub const MESSAGE_IDS_MAX: u64 = 16_000_000;
/// Most ids that all topics may remember together.
pub const MESSAGE_IDS_ALL_MAX: u64 = 32_000_000;

/// Ids past their time that one new id takes with it at most.
const FORGOTTEN_AT_ONCE: usize = 4;
/// Ids past their time that housekeeping takes at once, of a topic that still has others.
const FORGOTTEN_IN_PASSING: usize = 65_536;
/// Bytes of an id in a snapshot.
pub(in crate::core) const KEPT_BYTES: usize = 32;

/// All ids that are remembered.
#[derive(Debug, Default)]
pub struct MessageIds {
    topics: BTreeMap<TopicId, Window>,
    len: usize,
}

impl MessageIds {
    /// Where the id was appended first, if that is within the window at `now`.
    pub(in crate::core) fn get(
        &self,
        topic: TopicId,
        hash: IdHash,
        (window_ms, now): (u64, WallMs),
    ) -> Option<FirstAppend> {
        let live = Live::within(window_ms, now);
        self.topics.get(&topic)?.get(hash, live)
    }

    /// How many of a topic count at `now`.
    pub fn count(&self, topic: TopicId, (window_ms, now): (u64, WallMs)) -> u64 {
        let live = Live::within(window_ms, now);
        self.topics
            .get(&topic)
            .map_or(0, |window| wide(window.count(live)))
    }

    /// How many of a topic are kept, some of them perhaps past their time.
    pub(in crate::core) fn kept(&self, topic: TopicId) -> u64 {
        self.topics
            .get(&topic)
            .map_or(0, |window| wide(window.len()))
    }

    /// How many of all topics are kept.
    pub(in crate::core) fn all_kept(&self) -> u64 {
        wide(self.len)
    }

    /// Remembers an id that is not remembered. Times do not fall from call to call.
    pub(in crate::core) fn insert(
        &mut self,
        (topic, hash): (TopicId, IdHash),
        first: FirstAppend,
        (window_ms, now): (u64, WallMs),
    ) {
        let window = self.topics.entry(topic).or_insert_with(Window::new);
        let live = Live::within(window_ms, now);
        self.len -= window.forget(live, FORGOTTEN_AT_ONCE);
        window.push(Slot::new(hash, now, first));
        self.len += 1;
    }

    /// Whether housekeeping would find something to forget.
    pub(in crate::core) fn has_past(
        &self,
        now: WallMs,
        window_ms: impl Fn(TopicId) -> u64,
    ) -> bool {
        let mut topics = self.topics.iter();
        topics.any(|(topic, window)| window.has_past(Live::within(window_ms(*topic), now)))
    }

    /// Forgets what is past its time, of a topic that still has others only so much at once.
    pub(in crate::core) fn expire(&mut self, now: WallMs, window_ms: impl Fn(TopicId) -> u64) {
        let len = &mut self.len;
        self.topics.retain(|topic, window| {
            let live = Live::within(window_ms(*topic), now);
            if window.is_past(live) {
                *len -= window.len();
                return false;
            }
            *len -= window.forget(live, FORGOTTEN_IN_PASSING);
            true
        });
    }

    pub(in crate::core) fn drop_topic(&mut self, topic: TopicId) {
        if let Some(window) = self.topics.remove(&topic) {
            self.len -= window.len();
        }
    }

    /// Topics that have any.
    pub(in crate::core) fn topics(&self) -> impl Iterator<Item = TopicId> {
        self.topics.keys().copied()
    }

    /// What a snapshot holds of them. Costs little: it shares them with what is here.
    pub(in crate::core) fn snapshot(&self) -> IdsSnapshot {
        let topics = self.topics.iter().map(|(topic, window)| {
            let (chunks, given_up) = window.shared();
            Kept {
                topic: *topic,
                len: window.len(),
                chunks,
                given_up,
            }
        });
        IdsSnapshot {
            topics: topics.collect(),
            len: self.len,
        }
    }

    /// Takes in the next one of a snapshot, as [`IdsSnapshot::put`] wrote it.
    pub(in crate::core) fn restore(
        &mut self,
        topic: TopicId,
        (hash, when_where, offset): (IdHash, u64, varvelog_store::Offset),
    ) {
        let window = self.topics.entry(topic).or_insert_with(Window::new);
        window.push(Slot {
            hash,
            when_where,
            offset,
        });
        self.len += 1;
    }

    /// What must hold and does not, if anything.
    pub(in crate::core) fn verify(&self) -> Result<(), &'static str> {
        self.topics.values().try_for_each(Window::verify)
    }
}

/// The ids as of one command, to be encoded later and elsewhere.
#[derive(Debug, Clone)]
pub(in crate::core) struct IdsSnapshot {
    topics: Vec<Kept>,
    len: usize,
}

/// Those of one topic.
#[derive(Debug, Clone)]
struct Kept {
    topic: TopicId,
    len: usize,
    chunks: Vec<Arc<Vec<Slot>>>,
    /// Slots of the first chunk that are not among them.
    given_up: usize,
}

impl IdsSnapshot {
    /// Bytes that it takes, nearly.
    pub(in crate::core) fn bytes(&self) -> usize {
        (self.len + self.topics.len() + 1) * KEPT_BYTES
    }

    pub(in crate::core) fn put(&self, out: &mut FieldWriter) {
        out.count(self.topics.len());
        for kept in &self.topics {
            out.topic(kept.topic);
            out.count(kept.len);
            let slots = kept.chunks.iter().flat_map(|chunk| chunk.iter());
            for slot in slots.skip(kept.given_up) {
                out.id_hash(slot.hash);
                out.u64(slot.when_where);
                out.offset(slot.offset);
            }
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
