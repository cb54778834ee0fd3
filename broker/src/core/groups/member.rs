//! Members: who reads, by which stream, and how much may be out.

use std::collections::BTreeSet;
use std::ops::Bound;

use varvelog_store::{PartitionId, TopicId, WallMs};

use crate::clock::MonoMs;
use crate::core::request::{Credit, LeaseId, StreamKey};

/// A member, for the machine: rises with each one that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberKey(pub(super) u64);

/// Largest sum of explicit credit.
pub(super) const CREDIT_MAX: u32 = 1_000;

/// A member.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Member {
    /// For clients.
    pub(super) id: String,
    /// Set for a static member.
    pub(super) name: Option<String>,
    /// Peer, for people.
    pub(super) address: String,
    /// First seen.
    pub(super) joined: WallMs,
    /// None: whatever the group reads.
    pub(super) topics: Option<BTreeSet<TopicId>>,
    /// None: the group's visibility timeout.
    pub(super) ack_timeout_ms: Option<u64>,
    pub(super) auto_ack: bool,
    pub(super) link: Link,
    pub(super) credit: Room,
    /// This stream had its first event.
    pub(super) introduced: bool,
    /// Of its last event on any stream, by which its commits are fenced.
    pub(super) told_generation: Option<u64>,
    /// A static member whose program was restarted, until the next generation.
    pub(super) restarted: bool,
    /// Assigned, as of its last event or, without a stream, as it will find on its return.
    pub(super) assigned: BTreeSet<PartitionId>,
    /// Those of `assigned` that may have something to give.
    pub(super) ready: BTreeSet<PartitionId>,
    /// Given out last: the next grant begins its search behind it.
    pub(super) served: Option<PartitionId>,
    /// Leases and grants that are out, of any stream of this member.
    pub(super) held: BTreeSet<(PartitionId, LeaseId)>,
    /// It holds this record alone, and is given nothing else until it is settled.
    pub(super) isolated: Option<LeaseId>,
    /// Most records of one response.
    pub(super) records_max: u64,
    /// Known only from what was noted before a restart, until it comes back.
    pub(super) restored: bool,
}

/// How a member is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// By this stream.
    Live(StreamKey),
    /// Not at all; then its session ends.
    Lost(MonoMs),
}

/// Room for more responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// So many may be out at a time.
    Window(u32),
    /// So many more may be sent.
    Explicit(u32),
}

impl From<Credit> for Room {
    fn from(credit: Credit) -> Self {
        match credit {
            Credit::Window(responses) => Self::Window(responses),
            Credit::Explicit => Self::Explicit(0),
        }
    }
}

impl Member {
    /// The stream on which records may go out now: live, introduced by an event, with credit.
    pub(super) fn open_stream(&self) -> Option<StreamKey> {
        let Link::Live(stream) = self.link else {
            return None;
        };
        let room = match self.credit {
            Room::Window(responses) => {
                self.held.len() < usize::try_from(responses).unwrap_or(usize::MAX)
            }
            Room::Explicit(responses) => responses > 0,
        };
        (self.introduced && room).then_some(stream)
    }

    /// A response is on its way.
    pub(super) fn spend(&mut self) {
        if let Room::Explicit(responses) = &mut self.credit {
            *responses = responses.saturating_sub(1);
        }
    }

    /// Nothing came of a response that credit was spent on.
    pub(super) fn refund(&mut self) {
        self.add_credit(1);
    }

    /// More responses may be sent.
    pub(super) fn add_credit(&mut self, more: u32) {
        if let Room::Explicit(responses) = &mut self.credit {
            *responses = responses.saturating_add(more).min(CREDIT_MAX);
        }
    }

    /// The partitions to look at, in that order: round and round.
    pub(super) fn ready_in_turn(&self) -> Vec<PartitionId> {
        in_turn(&self.ready, self.served)
    }

    /// Whether it wants records of a topic.
    pub(super) fn wants(&self, topic: TopicId) -> bool {
        self.topics
            .as_ref()
            .is_none_or(|topics| topics.contains(&topic))
    }
}

/// Partitions in the order in which they are looked at: those behind the last one served first.
pub(super) fn in_turn(
    ready: &BTreeSet<PartitionId>,
    served: Option<PartitionId>,
) -> Vec<PartitionId> {
    let Some(served) = served else {
        return ready.iter().copied().collect();
    };
    let behind = (Bound::Excluded(served), Bound::Unbounded);
    let before = ready.range(..=served);
    ready.range(behind).chain(before).copied().collect()
}
