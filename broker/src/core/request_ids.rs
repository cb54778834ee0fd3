//! Request ids: a request sent again within five minutes of running time is answered with what
//! the first one got.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use varvelog_store::TopicId;

use super::fields::holds;
use super::request::{PartAppended, Repeat};

/// How long an id is remembered, in milliseconds of running time.
pub const REQUEST_ID_MS: u64 = 5 * 60 * 1_000;
/// Most ids that a topic may remember, whatever the configured limit.
pub const REQUEST_IDS_MAX: u64 = 10_000_000;

/// Ids past their time that one new id takes with it at most.
const FORGOTTEN_AT_ONCE: usize = 64;

/// A request that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) content_hash: u64,
    /// Running time at which it was appended.
    pub(super) running_ms: u64,
    pub(super) parts: Box<[PartAppended]>,
    pub(super) repeats: Box<[Repeat]>,
}

impl Remembered {
    fn is_live(&self, running_ms: u64) -> bool {
        is_live(self.running_ms, running_ms)
    }
}

fn is_live(since_ms: u64, running_ms: u64) -> bool {
    running_ms.saturating_sub(since_ms) < REQUEST_ID_MS
}

/// The ids of one topic. The map is never iterated; an entry of the queue whose time differs from
/// that in the map is past its time, and its id was used again since.
#[derive(Debug, Default)]
struct OfTopic {
    by_id: HashMap<Arc<str>, Remembered>,
    queue: VecDeque<(u64, Arc<str>)>,
}

impl OfTopic {
    fn push(&mut self, id: &str, request: Remembered) {
        let id: Arc<str> = id.into();
        self.queue.push_back((request.running_ms, Arc::clone(&id)));
        self.by_id.insert(id, request);
    }

    fn forget(&mut self, running_ms: u64, at_most: usize) {
        for _ in 0..at_most {
            match self.queue.front() {
                Some((since_ms, _)) if !is_live(*since_ms, running_ms) => {}
                _ => return,
            }
            if let Some((since_ms, id)) = self.queue.pop_front()
                && self
                    .by_id
                    .get(&id)
                    .is_some_and(|known| known.running_ms == since_ms)
            {
                self.by_id.remove(&id);
            }
        }
    }
}

/// All request ids.
#[derive(Debug, Default)]
pub struct RequestIds {
    topics: BTreeMap<TopicId, OfTopic>,
}

impl RequestIds {
    /// The request, if it is remembered at `running_ms`.
    pub(super) fn get(&self, topic: TopicId, id: &str, running_ms: u64) -> Option<&Remembered> {
        let known = self.topics.get(&topic)?.by_id.get(id)?;
        known.is_live(running_ms).then_some(known)
    }

    /// How many a topic remembers at `running_ms`.
    pub fn count(&self, topic: TopicId, running_ms: u64) -> u64 {
        let Some(of_topic) = self.topics.get(&topic) else {
            return 0;
        };
        let queue = &of_topic.queue;
        let past = queue.partition_point(|(since_ms, _)| !is_live(*since_ms, running_ms));
        u64::try_from(queue.len() - past).unwrap_or(u64::MAX)
    }

    /// Remembers a request whose id is not remembered. Times do not fall from call to call.
    pub(super) fn insert(&mut self, topic: TopicId, id: &str, request: Remembered) {
        let of_topic = self.topics.entry(topic).or_default();
        of_topic.forget(request.running_ms, FORGOTTEN_AT_ONCE);
        of_topic.push(id, request);
    }

    /// Forgets all that is past its time.
    pub(super) fn expire(&mut self, running_ms: u64) {
        self.topics.retain(|_, of_topic| {
            of_topic.forget(running_ms, usize::MAX);
            !of_topic.queue.is_empty()
        });
    }

    pub(super) fn drop_topic(&mut self, topic: TopicId) {
        self.topics.remove(&topic);
    }

    /// Topics that have any.
    pub(super) fn topics(&self) -> impl Iterator<Item = TopicId> {
        self.topics.keys().copied()
    }

    /// All of a topic, oldest first.
    pub(super) fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (&str, &Remembered)> {
        self.topics.get(&topic).into_iter().flat_map(|of_topic| {
            of_topic.queue.iter().filter_map(|(since_ms, id)| {
                let known = of_topic.by_id.get(id)?;
                (known.running_ms == *since_ms).then_some((&**id, known))
            })
        })
    }

    /// Takes in the next one of a snapshot; false if it is not in order or is there already.
    pub(super) fn restore(
        &mut self,
        topic: TopicId,
        id: &str,
        request: Remembered,
        last_ms: &mut u64,
    ) -> bool {
        let of_topic = self.topics.entry(topic).or_default();
        if request.running_ms < *last_ms || of_topic.by_id.contains_key(id) {
            return false;
        }
        *last_ms = request.running_ms;
        of_topic.push(id, request);
        true
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        for (topic, of_topic) in &self.topics {
            let in_order = of_topic.queue.iter().is_sorted_by_key(|entry| entry.0);
            holds(in_order, "request ids are not in order")?;
            let found = self.of_topic(*topic).count();
            holds(
                found == of_topic.by_id.len(),
                "a request id is remembered for ever",
            )?;
        }
        Ok(())
    }
}
