//! Which member gets which partition: a pure function, sticky and balanced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use varvelog_store::{PartitionId, TopicId};

use super::member::MemberKey;

/// Whose each partition is.
pub(super) type Assignment = BTreeMap<PartitionId, MemberKey>;

/// Gives every partition that some member wants to one that wants it.
///
/// The result is balanced: no partition could go from its owner to another member that wants it,
/// directly or by passing others on, such that the two would then differ by less. Where all want
/// the same that is a difference of one at most. What need not move for that stays where it was.
pub(super) fn assign(
    previous: &Assignment,
    wanted: &BTreeMap<MemberKey, BTreeSet<TopicId>>,
    partitions: &BTreeMap<TopicId, u32>,
) -> Assignment {
    let mut balance = Balance::new(wanted, partitions);
    for (partition, member) in previous {
        balance.keep(*partition, *member);
    }
    balance.give_unowned(partitions);
    balance.even_out();
    balance.into_assignment()
}

struct Balance {
    /// Members that want a topic.
    claimants: BTreeMap<TopicId, BTreeSet<MemberKey>>,
    /// Partitions of a topic that have no owner yet.
    unowned: BTreeMap<TopicId, BTreeSet<u32>>,
    owned: BTreeMap<MemberKey, BTreeMap<TopicId, BTreeSet<u32>>>,
    loads: BTreeMap<MemberKey, u64>,
    by_load: BTreeSet<(u64, MemberKey)>,
}

impl Balance {
    fn new(
        wanted: &BTreeMap<MemberKey, BTreeSet<TopicId>>,
        partitions: &BTreeMap<TopicId, u32>,
    ) -> Self {
        let mut claimants: BTreeMap<TopicId, BTreeSet<MemberKey>> = BTreeMap::new();
        for (member, topics) in wanted {
            for topic in topics.iter().filter(|topic| partitions.contains_key(topic)) {
                claimants.entry(*topic).or_default().insert(*member);
            }
        }
        let unowned = partitions
            .iter()
            .filter(|(topic, _)| claimants.contains_key(topic));
        Self {
            unowned: unowned
                .map(|(topic, count)| (*topic, (0..*count).collect()))
                .collect(),
            owned: wanted
                .keys()
                .map(|member| (*member, BTreeMap::new()))
                .collect(),
            loads: wanted.keys().map(|member| (*member, 0)).collect(),
            by_load: wanted.keys().map(|member| (0, *member)).collect(),
            claimants,
        }
    }

    fn wants(&self, member: MemberKey, topic: TopicId) -> bool {
        self.claimants
            .get(&topic)
            .is_some_and(|members| members.contains(&member))
    }

    fn keep(&mut self, partition: PartitionId, member: MemberKey) {
        let PartitionId { topic, partition } = partition;
        let free = self
            .unowned
            .get_mut(&topic)
            .is_some_and(|free| free.remove(&partition));
        if !free {
            return;
        }
        if self.wants(member, topic) {
            self.give(topic, partition, member);
        } else if let Some(free) = self.unowned.get_mut(&topic) {
            free.insert(partition);
        }
    }

    fn give(&mut self, topic: TopicId, partition: u32, member: MemberKey) {
        self.owned
            .entry(member)
            .or_default()
            .entry(topic)
            .or_default()
            .insert(partition);
        self.change_load(member, 1);
    }

    fn change_load(&mut self, member: MemberKey, by: i64) {
        let load = self.loads.entry(member).or_default();
        self.by_load.remove(&(*load, member));
        *load = load.saturating_add_signed(by);
        self.by_load.insert((*load, member));
    }

    fn load(&self, member: MemberKey) -> u64 {
        self.loads.get(&member).copied().unwrap_or(0)
    }

    /// Each to the least loaded that wants it; topics that few want go first.
    fn give_unowned(&mut self, partitions: &BTreeMap<TopicId, u32>) {
        let count = |topic: &TopicId| self.claimants.get(topic).map_or(0, BTreeSet::len);
        let mut topics: Vec<_> = partitions.keys().copied().collect();
        topics.sort_by_key(|topic| (count(topic), *topic));
        for topic in topics {
            let free = self.unowned.remove(&topic).unwrap_or_default();
            let Some(claimants) = self.claimants.get(&topic) else {
                continue;
            };
            let mut queue: BTreeSet<_> = claimants
                .iter()
                .map(|member| (self.load(*member), *member))
                .collect();
            for partition in free {
                let Some((load, member)) = queue.pop_first() else {
                    break;
                };
                queue.insert((load + 1, member));
                self.give(topic, partition, member);
            }
        }
    }

    /// Moves partitions from the most loaded to the least loaded that can be reached, until none
    /// can be whose load is lower by two or more. Each move lowers the sum of squared loads.
    fn even_out(&mut self) {
        loop {
            let most = self.by_load.last().map(|(_, member)| *member);
            if most.is_some_and(|member| self.relieve(member)) {
                continue;
            }
            let from_most: Vec<_> = self
                .by_load
                .iter()
                .rev()
                .map(|(_, member)| *member)
                .collect();
            if !from_most.into_iter().any(|member| self.relieve(member)) {
                return;
            }
        }
    }

    /// Moves one partition away from `member` if that evens out loads.
    fn relieve(&mut self, member: MemberKey) -> bool {
        let load = self.load(member);
        let Some((least, idle)) = self.by_load.first().copied() else {
            return false;
        };
        if load < least + 2 {
            return false;
        }
        // Where all want the same, the least loaded can be reached at once.
        let direct = self
            .owned
            .get(&member)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied();
        if let Some(topic) = direct.into_iter().find(|topic| self.wants(idle, *topic)) {
            self.pass_on(topic, member, idle);
            return true;
        }
        let reached = self.reach(member);
        let target = reached.keys().map(|to| (self.load(*to), *to)).min();
        let Some((_, target)) = target.filter(|(least, _)| least + 2 <= load) else {
            return false;
        };
        let mut to = target;
        while let Some((from, topic)) = reached.get(&to).copied() {
            self.pass_on(topic, from, to);
            to = from;
        }
        true
    }

    /// Members to whom a partition could go from `member`, directly or by way of others, each with
    /// the one before it on the shortest way and the topic of the partition.
    fn reach(&self, member: MemberKey) -> BTreeMap<MemberKey, (MemberKey, TopicId)> {
        let mut reached = BTreeMap::new();
        let mut seen_topics = BTreeSet::new();
        let mut queue = VecDeque::from([member]);
        while let Some(from) = queue.pop_front() {
            for topic in self.owned.get(&from).into_iter().flat_map(BTreeMap::keys) {
                // Whoever owned a partition of the topic before reaches the same members.
                if !seen_topics.insert(*topic) {
                    continue;
                }
                for to in self.claimants.get(topic).into_iter().flatten() {
                    if *to != member && !reached.contains_key(to) {
                        reached.insert(*to, (from, *topic));
                        queue.push_back(*to);
                    }
                }
            }
        }
        reached
    }

    fn pass_on(&mut self, topic: TopicId, from: MemberKey, to: MemberKey) {
        let Some(topics) = self.owned.get_mut(&from) else {
            return;
        };
        let Some(partitions) = topics.get_mut(&topic) else {
            return;
        };
        let Some(partition) = partitions.pop_last() else {
            return;
        };
        if partitions.is_empty() {
            topics.remove(&topic);
        }
        self.change_load(from, -1);
        self.give(topic, partition, to);
    }

    fn into_assignment(self) -> Assignment {
        let mut assignment = BTreeMap::new();
        for (member, topics) in self.owned {
            for (topic, partitions) in topics {
                for partition in partitions {
                    assignment.insert(PartitionId { topic, partition }, member);
                }
            }
        }
        assignment
    }
}

#[cfg(test)]
#[path = "assignment_tests.rs"]
mod tests;
