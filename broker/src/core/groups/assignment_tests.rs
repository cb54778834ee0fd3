use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use varvelog_store::{PartitionId, TopicId};

use super::{Assignment, assign};
use crate::core::groups::member::MemberKey;

type Wanted = BTreeMap<MemberKey, BTreeSet<TopicId>>;
type Partitions = BTreeMap<TopicId, u32>;

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn alike(members: impl IntoIterator<Item = u64>) -> Wanted {
    members
        .into_iter()
        .map(|key| (MemberKey(key), [topic(0)].into()))
        .collect()
}

fn loads(assignment: &Assignment, wanted: &Wanted) -> BTreeMap<MemberKey, usize> {
    let mut loads: BTreeMap<_, _> = wanted.keys().map(|key| (*key, 0)).collect();
    for key in assignment.values() {
        *loads.get_mut(key).unwrap() += 1;
    }
    loads
}

/// Every partition that someone wants has one owner, and that one wants it.
fn check_complete(assignment: &Assignment, wanted: &Wanted, partitions: &Partitions) {
    let claimed = |topic: &TopicId| wanted.values().any(|topics| topics.contains(topic));
    let expected: BTreeSet<_> = partitions
        .iter()
        .filter(|(topic, _)| claimed(topic))
        .flat_map(|(topic, count)| {
            (0..*count).map(|partition| PartitionId {
                topic: *topic,
                partition,
            })
        })
        .collect();
    assert_eq!(
        assignment.keys().copied().collect::<BTreeSet<_>>(),
        expected
    );
    for (partition, key) in assignment {
        assert!(wanted[key].contains(&partition.topic));
    }
}

/// Nothing could be passed on, directly or by others, to a member that has less by two.
fn check_balanced(assignment: &Assignment, wanted: &Wanted) {
    let loads = loads(assignment, wanted);
    for from in wanted.keys() {
        let mut reached = BTreeSet::from([*from]);
        loop {
            let topics: BTreeSet<_> = assignment
                .iter()
                .filter(|(_, owner)| reached.contains(owner))
                .map(|(partition, _)| partition.topic)
                .collect();
            let more = wanted
                .iter()
                .filter(|(_, wants)| !wants.is_disjoint(&topics));
            let before = reached.len();
            reached.extend(more.map(|(key, _)| *key));
            if reached.len() == before {
                break;
            }
        }
        for to in &reached {
            assert!(
                loads[from] < loads[to] + 2,
                "{from:?} could relieve itself on {to:?}"
            );
        }
    }
}

fn wanted(members: usize) -> impl Strategy<Value = Wanted> {
    let topics = prop::collection::btree_set((0..4u8).prop_map(topic), 0..4);
    prop::collection::btree_map((0..40u64).prop_map(MemberKey), topics, 0..members)
}

fn partitions() -> impl Strategy<Value = Partitions> {
    prop::collection::btree_map((0..4u8).prop_map(topic), 1..12u32, 0..4)
}

proptest! {
    #[test]
    fn whatever_members_want_the_assignment_is_complete_balanced_and_settled(
        steps in prop::collection::vec((wanted(8), partitions()), 1..5),
    ) {
        let mut assignment = Assignment::new();
        for (wanted, partitions) in steps {
            assignment = assign(&assignment, &wanted, &partitions);
            check_complete(&assignment, &wanted, &partitions);
            check_balanced(&assignment, &wanted);
            prop_assert_eq!(&assign(&assignment, &wanted, &partitions), &assignment);
        }
    }

    #[test]
    fn where_all_want_the_same_loads_differ_by_one_and_nothing_moves_without_need(
        before in prop::collection::btree_set(0..20u64, 1..12),
        after in prop::collection::btree_set(0..20u64, 1..12),
        count in 1..60u32,
        more in 0..5u32,
    ) {
        let (before, after) = (alike(before), alike(after));
        let previous = assign(&Assignment::new(), &before, &[(topic(0), count)].into());
        let next = assign(&previous, &after, &[(topic(0), count + more)].into());
        let loads = loads(&next, &after);
        prop_assert!(loads.values().max().unwrap() - loads.values().min().unwrap() <= 1);
        // Who stays keeps all of its own up to an equal share, and the larger shares go to those
        // who have that much already.
        let total = usize::try_from(count + more).unwrap();
        let (share, extra) = (total / after.len(), total % after.len());
        let held = |key: &MemberKey| previous.values().filter(|owner| *owner == key).count();
        let stay: Vec<_> = after.keys().filter(|key| before.contains_key(key)).collect();
        let large = stay.iter().filter(|key| held(key) > share).count().min(extra);
        let most = stay.iter().map(|key| held(key).min(share)).sum::<usize>() + large;
        let kept = next.iter().filter(|(id, owner)| previous.get(id) == Some(owner)).count();
        prop_assert_eq!(kept, most);
    }
}

#[test]
fn a_chain_of_members_passes_partitions_on_where_none_can_be_given_directly() {
    let (orders, bills) = (topic(0), topic(1));
    let wanted: Wanted = [
        (MemberKey(1), [orders].into()),
        (MemberKey(2), [orders, bills].into()),
        (MemberKey(3), [bills].into()),
    ]
    .into();
    let owned = |topic, partition, key| (PartitionId { topic, partition }, MemberKey(key));
    let previous = [owned(orders, 0, 1), owned(orders, 1, 1), owned(bills, 0, 2)].into();
    let next = assign(&previous, &wanted, &[(orders, 2), (bills, 1)].into());
    let expected: Assignment =
        [owned(orders, 0, 1), owned(orders, 1, 2), owned(bills, 0, 3)].into();
    assert_eq!(next, expected);
}

#[test]
fn ten_thousand_partitions_spread_over_a_thousand_members_that_come_at_once() {
    let partitions: Partitions = [(topic(0), 10_000)].into();
    let first = assign(&Assignment::new(), &alike([0]), &partitions);
    let all = alike(0..1_000);
    let next = assign(&first, &all, &partitions);
    assert!(loads(&next, &all).values().all(|load| *load == 10));
}
