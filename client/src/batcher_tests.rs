use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: BatchLimits = BatchLimits {
    bytes: 100,
    records: 5,
    linger: Duration::from_millis(5),
};

fn start() -> Instant {
    crate::clock::now()
}

fn pushed(
    batcher: &mut Batcher<u32>,
    at: Instant,
    items: &[(u32, u32, usize)],
) -> Vec<Sealed<u32>> {
    let mut sealed = Vec::new();
    for &(partition, item, bytes) in items {
        batcher.push(at, partition, item, bytes, &mut sealed);
    }
    sealed
}

#[test]
fn a_record_that_does_not_fit_seals_the_batch_before_it() {
    let mut batcher = Batcher::new(LIMITS);
    let sealed = pushed(&mut batcher, start(), &[(0, 1, 60), (0, 2, 60)]);
    assert_eq!(
        sealed,
        [Sealed {
            partition: 0,
            items: vec![1],
            bytes: 60
        }]
    );
    let mut rest = Vec::new();
    batcher.take_all(&mut rest);
    assert_eq!(
        rest,
        [Sealed {
            partition: 0,
            items: vec![2],
            bytes: 60
        }]
    );
    assert!(batcher.is_empty());
}

#[test]
fn a_record_larger_than_a_batch_goes_alone_and_at_once() {
    let mut batcher = Batcher::new(LIMITS);
    let sealed = pushed(&mut batcher, start(), &[(0, 1, 10), (0, 2, 500)]);
    let items: Vec<_> = sealed.into_iter().map(|batch| batch.items).collect();
    assert_eq!(items, [vec![1], vec![2]]);
}

#[test]
fn a_batch_is_sealed_at_its_most_records() {
    let mut batcher = Batcher::new(LIMITS);
    let items: Vec<_> = (0..7).map(|item| (0, item, 1)).collect();
    let sealed = pushed(&mut batcher, start(), &items);
    assert_eq!(
        sealed,
        [Sealed {
            partition: 0,
            items: vec![0, 1, 2, 3, 4],
            bytes: 5
        }]
    );
}

#[test]
fn lingering_counts_from_the_first_record_of_the_batch() {
    let mut batcher = Batcher::new(LIMITS);
    let begin = start();
    let mut sealed = pushed(&mut batcher, begin, &[(0, 1, 1)]);
    batcher.push(begin + Duration::from_millis(4), 0, 2, 1, &mut sealed);
    assert_eq!(batcher.next_due(), Some(begin + Duration::from_millis(5)));
    batcher.take_due(begin + Duration::from_micros(4_999), &mut sealed);
    assert!(sealed.is_empty());
    batcher.take_due(begin + Duration::from_millis(5), &mut sealed);
    assert_eq!(
        sealed,
        [Sealed {
            partition: 0,
            items: vec![1, 2],
            bytes: 2
        }]
    );
    assert_eq!(batcher.next_due(), None);
}

#[derive(Debug, Clone)]
enum Step {
    Push { partition: u32, bytes: usize },
    Wait(u64),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u32..4, 0_usize..130)
            .prop_map(|(partition, bytes)| Step::Push { partition, bytes }),
        2 => (0_u64..8).prop_map(Step::Wait),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 0..200)
}

/// Nothing open may have lingered, and the next due time is never in the past.
fn nothing_lingers(batcher: &Batcher<usize>, now: Instant) {
    assert!(
        batcher
            .next_due()
            .is_none_or(|due| due > now && due <= now + LIMITS.linger)
    );
}

fn run(steps: &[Step]) -> (BTreeMap<u32, Vec<usize>>, Vec<Sealed<usize>>) {
    let (mut batcher, mut now) = (Batcher::new(LIMITS), start());
    let (mut given, mut sealed) = (BTreeMap::<u32, Vec<usize>>::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Push { partition, bytes } => {
                given.entry(partition).or_default().push(number);
                batcher.push(now, partition, number, bytes, &mut sealed);
            }
            Step::Wait(ms) => {
                now += Duration::from_millis(ms);
                batcher.take_due(now, &mut sealed);
                nothing_lingers(&batcher, now);
            }
            Step::Flush => {
                batcher.take_all(&mut sealed);
                assert!(batcher.is_empty() && batcher.next_due().is_none());
            }
        }
    }
    batcher.take_all(&mut sealed);
    (given, sealed)
}

proptest! {
    #[test]
    fn every_record_leaves_once_in_order_within_the_limits(steps in steps()) {
        let (given, sealed) = run(&steps);
        let mut taken = BTreeMap::<u32, Vec<usize>>::new();
        for batch in sealed {
            prop_assert!(!batch.items.is_empty());
            prop_assert!(batch.items.len() <= LIMITS.records);
            prop_assert!(batch.bytes <= LIMITS.bytes || batch.items.len() == 1);
            taken.entry(batch.partition).or_default().extend(batch.items);
        }
        prop_assert_eq!(given, taken);
    }
}
