//! Members: who reads, by which stream, and how much may be out.

use std::collections::BTreeSet;

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

    /// The partition to look at next, round and round.
    pub(super) fn next_ready(&self) -> Option<PartitionId> {
        let behind = self.served.and_then(|served| {
            let behind = (
                std::ops::Bound::Excluded(served),
                std::ops::Bound::Unbounded,
            );
            self.ready.range(behind).next()
        });
        behind.or_else(|| self.ready.first()).copied()
    }
}
