//! What people see of a group's live side.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, WallMs};

use super::feed::Feed;
use super::group::Group;
use super::lease::Lease;
use super::member::{Link, MemberKey};

/// A group's live side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupDescription {
    /// Of the assignment that its members know.
    pub generation: u64,
    /// Live ones and those that are waited for, in the order in which they joined.
    pub members: Vec<MemberDescription>,
    /// First deliveries are slowed down by the circuit breaker.
    pub breaker_open: bool,
    /// Partitions that are read, or of which something is out; retry topics' too.
    pub partitions: BTreeMap<PartitionId, PartitionDescription>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberDescription {
    /// As in its events.
    pub id: String,
    /// Of a static member.
    pub name: Option<String>,
    /// Of its connection; none while it is waited for.
    pub address: Option<String>,
    /// First seen.
    pub joined: WallMs,
    /// Assigned.
    pub partitions: Vec<PartitionId>,
    /// Records that it holds.
    pub in_flight: u64,
}

/// A partition as its group gives it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Id of the member whose it is; none between two.
    pub owner: Option<String>,
    /// Records that are leased.
    pub in_flight: u64,
    /// Records behind an earlier one of their key, as far as keys were looked at.
    pub blocked: u64,
    /// The lowest record that was given out and is not settled. It holds back the low watermark
    /// if it lies there.
    pub pinned: Option<PinnedRecord>,
    /// Why nothing new is given out, if something in the partition is to blame.
    pub stall: Option<StallReason>,
}

/// A record that was given out and is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRecord {
    /// Which.
    pub offset: Offset,
    /// The present one; 0 if nobody has it.
    pub attempt: u32,
    /// Id of the member that holds it.
    pub holder: Option<String>,
    /// Where it stands.
    pub state: OpenState,
}

/// Where a record stands that was given out and is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenState {
    /// A member has it.
    Leased,
    /// It could be given out.
    Ready,
    /// It waits for a time, for room, or for an operator.
    Waiting,
}

/// Why a partition gives out nothing new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StallReason {
    /// Too far beyond the lowest record that is not settled.
    Window,
    /// Too much waits behind records that failed: the first of them, and a hash of its key if it
    /// has one.
    Order {
        /// Which.
        offset: Offset,
        /// Of its key.
        key_hash: Option<u64>,
    },
    /// Too many retries wait.
    Retries,
}

impl Group {
    pub(super) fn describe(&self) -> GroupDescription {
        let mut in_flight: BTreeMap<MemberKey, u64> = BTreeMap::new();
        for lease in self.feeds.values().flat_map(|feed| feed.leases.iter()) {
            *in_flight.entry(lease.holder).or_default() += lease.records();
        }
        let id = |key: MemberKey| self.members.get(&key).map(|member| member.id.clone());
        let partition = |feed: &Feed| PartitionDescription {
            owner: feed.owner.and_then(id),
            in_flight: feed.leases.records(),
            blocked: feed
                .keys
                .as_ref()
                .map_or(0, super::key_window::KeyWindow::blocked),
            pinned: feed
                .lowest_open()
                .map(|(offset, state, lease)| PinnedRecord {
                    offset,
                    attempt: lease.map_or(0, |lease| lease.attempt),
                    holder: lease.and_then(|lease| id(lease.holder)),
                    state,
                }),
            stall: feed.stall(),
        };
        let member = |(key, member): (&MemberKey, &super::member::Member)| MemberDescription {
            id: member.id.clone(),
            name: member.name.clone(),
            address: match member.link {
                Link::Live(_) => Some(member.address.clone()),
                Link::Lost(_) => None,
            },
            joined: member.joined,
            partitions: member.assigned.iter().copied().collect(),
            in_flight: in_flight.get(key).copied().unwrap_or(0),
        };
        GroupDescription {
            generation: self.generation,
            breaker_open: self.breaker.is_open(),
            members: self.members.iter().map(member).collect(),
            partitions: self
                .feeds
                .iter()
                .map(|(id, feed)| (*id, partition(feed)))
                .collect(),
        }
    }
}

impl Feed {
    /// The lowest record that was given out and is not settled, and who has it.
    fn lowest_open(&self) -> Option<(Offset, OpenState, Option<&Lease>)> {
        let leased = self.leases.iter().find(|lease| !lease.is_granted());
        let leased = leased.map(|lease| (lease.first, OpenState::Leased, Some(lease)));
        let returned = self.returned.first_key_value().map(|(at, _)| *at);
        let ready = returned.map(|at| {
            let waits = self.waiting.contains(at);
            let state = if waits {
                OpenState::Waiting
            } else {
                OpenState::Ready
            };
            (at, state, None)
        });
        let waiting = self.waiting.next_from(Offset::ZERO);
        let waiting = waiting.map(|(at, _)| (at, OpenState::Waiting, None));
        let all = [leased, ready, waiting];
        all.into_iter()
            .flatten()
            .min_by_key(|(at, state, _)| (*at, *state))
    }

    fn stall(&self) -> Option<StallReason> {
        if self.retries_full {
            return Some(StallReason::Retries);
        }
        let keys = self.keys.as_ref().filter(|keys| keys.is_full())?;
        let (offset, key) = keys.first_blocking()?;
        Some(StallReason::Order {
            offset,
            key_hash: Some(key),
        })
    }
}
