//! What people see of a group's live side.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, WallMs};

use super::group::Group;
use super::member::{Link, MemberKey};

/// A group's live side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupDescription {
    /// Of the assignment that its members know.
    pub generation: u64,
    /// Live ones and those that are waited for, in the order in which they joined.
    pub members: Vec<MemberDescription>,
    /// Partitions that are assigned, or of which something is out.
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
    /// The lowest record that was given out and is not settled. It holds back the low watermark
    /// if it lies there.
    pub pinned: Option<PinnedRecord>,
}

/// A record that was given out and is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRecord {
    /// Which.
    pub offset: Offset,
    /// The present or next one.
    pub attempt: u32,
    /// Id of the member that holds it; none: it could be given out.
    pub holder: Option<String>,
}

impl Group {
    pub(super) fn describe(&self) -> GroupDescription {
        let mut in_flight: BTreeMap<MemberKey, u64> = BTreeMap::new();
        for lease in self.feeds.values().flat_map(|feed| feed.leases.iter()) {
            *in_flight.entry(lease.holder).or_default() += lease.records();
        }
        let id = |key: MemberKey| self.members.get(&key).map(|member| member.id.clone());
        let partition = |feed: &super::feed::Feed| PartitionDescription {
            owner: feed.owner.and_then(id),
            in_flight: feed.leases.records(),
            pinned: feed
                .lowest_pinned()
                .map(|(offset, attempt, holder)| PinnedRecord {
                    offset,
                    attempt,
                    holder: holder.and_then(id),
                }),
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
            members: self.members.iter().map(member).collect(),
            partitions: self
                .feeds
                .iter()
                .map(|(id, feed)| (*id, partition(feed)))
                .collect(),
        }
    }
}
