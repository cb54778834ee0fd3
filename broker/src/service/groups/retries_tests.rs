use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_790_000_000_000;

fn waiting(due: i64, origin: u64) -> Waiting<'static> {
    let partition = PartitionId {
        topic: TopicId([2; 16]),
        partition: 1,
    };
    let source = PartitionId {
        topic: TopicId([1; 16]),
        partition: 1,
    };
    Waiting {
        due: WallMs(due),
        source,
        origin: Offset::ZERO.plus(origin),
        place: Place {
            is_retry: true,
            partition,
            offset: Offset::ZERO.plus(origin),
        },
        failures: 1,
        note: None,
    }
}

fn page(size: usize, after: Option<Key>) -> Page {
    Page {
        after,
        size,
        now: WallMs(NOW),
        soonest: BinaryHeap::new(),
        counts: [0; BUCKET_ENDS.len()],
    }
}

proptest! {
    #[test]
    fn pages_have_all_that_wait_soonest_first_and_none_twice(
        dues in proptest::collection::vec(-5_i64..5, 0..60),
        size in 1_usize..9,
    ) {
        let all: Vec<Waiting<'_>> = dues
            .iter()
            .zip(0..)
            .map(|(due, origin)| waiting(NOW + due, origin))
            .collect();
        let mut listed: Vec<Key> = Vec::new();
        let mut after = None;
        loop {
            let mut page = page(size, after);
            for waiting in &all {
                page.take(waiting);
            }
            let mut soonest = page.soonest.into_sorted_vec();
            let has_more = soonest.len() > size;
            soonest.truncate(size);
            listed.extend(soonest.iter().map(|listed| listed.key));
            if !has_more {
                break;
            }
            let token = token_after(listed.last().unwrap());
            after = Some(read_token(&token).unwrap());
            prop_assert_eq!(after.as_ref(), listed.last());
        }
        prop_assert_eq!(listed.len(), all.len());
        prop_assert!(listed.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn no_text_makes_the_reader_of_tokens_panic(token in "(r1:)?[0-9:-]{0,80}") {
        drop(read_token(&token));
    }
}

#[test]
fn a_histogram_counts_all_and_ends_with_the_last_that_waits() {
    let mut page = page(1, None);
    for due in [-1, 0, 1, 1_000, 1_001, 1_000_000] {
        page.take(&waiting(NOW + due, 0));
    }
    let buckets = histogram(&page.counts, page.now);
    let counts: Vec<i64> = buckets.iter().map(|bucket| bucket.count).collect();
    assert_eq!(counts, [2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    let end = buckets[0].due_before_time.as_ref().unwrap();
    assert_eq!(
        end.seconds * 1000 + i64::from(end.nanos / 1_000_000),
        NOW + 1
    );
    assert!(histogram(&[0; BUCKET_ENDS.len()], page.now).is_empty());
    page.take(&waiting(i64::MAX, 0));
    assert_eq!(histogram(&page.counts, page.now).len(), BUCKET_ENDS.len());
}

#[test]
fn a_token_of_another_list_is_refused() {
    for token in [
        "orders",
        "1:orders",
        "r1:",
        "r1:1:2:3:4:5",
        "r1:1:2:3:4:5:6:7",
    ] {
        assert_eq!(
            read_token(token).unwrap_err().field,
            "page_token",
            "{token}"
        );
    }
}
