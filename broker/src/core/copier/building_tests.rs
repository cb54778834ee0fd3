use varvelog_store::batch::{Codec, read_header};
use varvelog_store::{Offset, WallMs};

use super::building::{COPIES_BYTES_MAX, CopyBuilder, OpenBatch, build};
use super::parts::{PART_BYTES_MAX, PART_RECORDS_MAX};
use super::reading::Taker;
use super::samples::{
    APPENDED, DEAD_LETTER, RETRY, SOURCE, Sample, at, copied, dead_at_once, decode, failed_once,
    job, opened, retry,
};
use crate::core::copies::{Copies, Copy, CopyTo};
use crate::core::failure::DeadReason;
use crate::core::reserved_headers::ReservedHeader;

fn numbered(count: u64) -> Vec<Sample> {
    let sample = |number: u64| Sample::of_value(format!("value {number}").as_bytes());
    (0..count).map(sample).collect()
}

fn names(sample: &Sample) -> Vec<String> {
    let reserved = sample.reserved().into_iter();
    reserved
        .map(|(name, _)| name["varvelog-".len()..].to_owned())
        .collect()
}

#[test]
fn a_record_that_failed_has_the_headers_of_a_retry_behind_its_own() {
    let sample = Sample::of_value(b"v")
        .with_header("trace", "1")
        .with_header("trace", "2");
    let job = job(SOURCE, vec![failed_once(10)]);
    let copies = build(&job, [&opened(10, APPENDED, &[sample])]).unwrap();

    let [copy] = &copied(&copies.parts, RETRY)[..] else {
        panic!("one record")
    };
    let first = |count| {
        copy.headers
            .iter()
            .take(count)
            .map(|(name, _)| name.as_slice())
    };
    assert_eq!(first(2).collect::<Vec<_>>(), [b"trace", b"trace"]);
    let expected = [
        ("message-id", "01010101-0101-0101-0101-010101010101/5/10"),
        ("origin-topic", "orders"),
        ("origin-partition", "5"),
        ("origin-offset", "10"),
        ("origin-timestamp-ms", "1700000000000"),
        ("queue", "orders.email"),
        ("attempt", "1"),
        ("first-failure-ms", "1700000001000"),
        ("last-attempt-ms", "1700000001000"),
        ("due-ms", "1700000100001"),
        ("error-class", "transient"),
        ("error-code", "E_IO"),
        ("error-message", "no route to host 10.0.0.7"),
        ("error-fingerprint", &fingerprint(&job.copies[0])),
        ("last-consumer", "worker-1"),
        ("attempt-log", "1,1700000001000,transient,E_IO"),
    ];
    let expected = expected.map(|(name, value)| (format!("varvelog-{name}"), value.to_owned()));
    assert_eq!(copy.reserved(), expected);
}

fn fingerprint(copy: &Copy) -> String {
    let failed = copy.failed.as_ref().unwrap();
    format!("{:016x}", failed.text.fingerprint(failed.class))
}

#[test]
fn a_dead_letter_says_why_and_since_when_and_has_the_stack_and_no_due_time() {
    let job = job(SOURCE, vec![dead_at_once(3)]);
    let copies = build(&job, [&opened(3, APPENDED, &numbered(1))]).unwrap();
    assert_eq!(copies.retries, []);
    let [copy] = &copied(&copies.parts, DEAD_LETTER)[..] else {
        panic!("one record")
    };
    let header = |name| copy.header(name).unwrap();
    assert_eq!(header("dead-reason"), "permanent");
    assert_eq!(header("dead-ms"), job.at.0.to_string());
    assert_eq!(header("error-stack"), "at parse (order.js:12)");
    assert_eq!(header("error-class"), "permanent");
    assert_eq!(copy.header("due-ms"), None);
}

#[test]
fn a_delayed_record_has_its_origin_and_due_time_and_no_failure() {
    let delayed = Copy {
        failed: None,
        to: retry(7, 0),
        ..failed_once(7)
    };
    let copies = build(
        &job(SOURCE, vec![delayed]),
        [&opened(7, APPENDED, &numbered(1))],
    )
    .unwrap();
    let copy = copied(&copies.parts, RETRY).remove(0);
    let expected = [
        "message-id",
        "origin-topic",
        "origin-partition",
        "origin-offset",
        "origin-timestamp-ms",
        "queue",
        "attempt",
        "due-ms",
    ];
    assert_eq!(names(&copy), expected);
    assert_eq!(copy.header("attempt").unwrap(), "0");
}

#[test]
fn a_retry_that_an_operator_moves_keeps_what_is_told_of_its_last_failure() {
    let first = build(
        &job(SOURCE, vec![failed_once(10)]),
        [&opened(10, APPENDED, &numbered(1))],
    );
    let retried = copied(&first.unwrap().parts, RETRY);
    let moved = Copy {
        offset: at(2),
        to: CopyTo::DeadLetter(DeadReason::Operator),
        failed: None,
    };
    let later = WallMs(APPENDED.0 + 5_000);
    let copies = build(&job(RETRY, vec![moved]), [&opened(2, later, &retried)]).unwrap();
    let dead = copied(&copies.parts, DEAD_LETTER).remove(0);
    assert_eq!(dead.header("dead-reason").unwrap(), "operator");
    let told = |sample: &Sample| {
        let headers = sample.reserved().into_iter();
        let is_kept = |name: &str| {
            !["due-ms", "dead-reason", "dead-ms"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        headers
            .filter(|(name, _)| is_kept(name))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&dead), told(&retried[0]));
}

#[test]
fn omitted_texts_are_in_no_copy() {
    let batch = opened(0, APPENDED, &numbered(2));
    let mut job = job(SOURCE, vec![failed_once(0), dead_at_once(1)]);
    job.omit_error_message = true;
    job.omit_error_stack = true;
    let copies = build(&job, [&batch]).unwrap();
    for to in [RETRY, DEAD_LETTER] {
        let copy = copied(&copies.parts, to).remove(0);
        assert_eq!(copy.header("error-message"), None);
        assert_eq!(copy.header("error-stack"), None);
        assert!(copy.header("error-code").is_some());
    }
    // What lies in a retry topic since before it was forbidden does not go on either.
    job.omit_error_message = false;
    let retried = copied(&build(&job, [&batch]).unwrap().parts, RETRY);
    assert!(retried[0].header("error-message").is_some());
    job.omit_error_message = true;
    job.from = RETRY;
    job.copies = vec![Copy {
        offset: at(0),
        to: CopyTo::DeadLetter(DeadReason::Operator),
        failed: None,
    }];
    let copies = build(&job, [&opened(0, APPENDED, &retried)]).unwrap();
    let dead = copied(&copies.parts, DEAD_LETTER).remove(0);
    assert_eq!(dead.header("error-message"), None);
}

#[test]
fn a_given_message_id_and_the_headers_of_a_replay_stay() {
    let sample = Sample::of_value(b"v")
        .with_header("varvelog-message-id", "mine")
        .with_header("varvelog-replay-count", "2")
        .with_header("varvelog-replay-job", "j")
        .with_header("varvelog-unheard-of", "x");
    let job = job(SOURCE, vec![failed_once(0)]);
    let copies = build(&job, [&opened(0, APPENDED, &[sample])]).unwrap();
    let copy = copied(&copies.parts, RETRY).remove(0);
    assert_eq!(copy.header("message-id").unwrap(), "mine");
    assert_eq!(copy.header("replay-count").unwrap(), "2");
    assert_eq!(copy.header("replay-job").unwrap(), "j");
    assert_eq!(copy.header("unheard-of"), None);
}

#[test]
fn targets_are_not_mixed_and_each_keeps_the_order_of_offsets() {
    let copies = (0..20).map(|offset| {
        if offset % 3 == 0 {
            dead_at_once(offset)
        } else {
            failed_once(offset)
        }
    });
    let job = job(SOURCE, copies.collect());
    let batches = [
        opened(0, APPENDED, &numbered(12)),
        opened(12, APPENDED, &numbered(8)),
    ];
    let built = build(&job, &batches).unwrap();
    let targets: Vec<_> = built.parts.iter().map(|part| part.partition).collect();
    assert_eq!(targets, [RETRY, DEAD_LETTER]);
    let origins = |to| {
        let copies = copied(&built.parts, to).into_iter();
        copies
            .map(|copy| copy.header("origin-offset").unwrap().parse().unwrap())
            .collect()
    };
    let (retried, dead): (Vec<u64>, Vec<u64>) = (origins(RETRY), origins(DEAD_LETTER));
    assert_eq!(dead, [0, 3, 6, 9, 12, 15, 18]);
    assert_eq!(retried.len() + dead.len(), 20);
    assert!(retried.is_sorted());
    let [(0, entries)] = &built.retries[..] else {
        panic!("the entries of one part")
    };
    let entries: Vec<_> = entries.iter().map(|entry| entry.origin.get()).collect();
    assert_eq!(entries, retried);
}

#[test]
fn copies_for_retry_come_in_parts_of_a_bounded_size_with_an_entry_each() {
    let value = vec![7; 1 << 20];
    let samples = vec![Sample::of_value(&value); 9];
    let job = job(SOURCE, (0..9).map(failed_once).collect());
    let built = build(&job, [&opened(0, APPENDED, &samples)]).unwrap();
    let counts: Vec<_> = built.parts.iter().map(|part| part.record_count).collect();
    assert_eq!(counts, [3, 3, 3]);
    for (index, part) in (0..).zip(&built.parts) {
        let plain: usize = decode(&part.body)
            .iter()
            .map(|copy| copy.value.as_ref().unwrap().len())
            .sum();
        assert!(plain <= PART_BYTES_MAX);
        let (of, entries) = &built.retries[usize::try_from(index).unwrap()];
        assert_eq!(*of, index);
        assert_eq!(u32::try_from(entries.len()).unwrap(), part.record_count);
    }
}

#[test]
fn a_part_ends_at_its_largest_number_of_records() {
    let count = u64::try_from(PART_RECORDS_MAX).unwrap() + 1;
    let tiny = Sample {
        key: None,
        value: None,
        ..Sample::of_value(b"")
    };
    let half = usize::try_from(count / 2).unwrap();
    let batches = [
        opened(0, APPENDED, &vec![tiny.clone(); half]),
        opened(count / 2, APPENDED, &vec![tiny; half + 1]),
    ];
    let delayed = |offset| Copy {
        failed: None,
        to: retry(offset, 0),
        ..failed_once(offset)
    };
    let job = job(SOURCE, (0..count).map(delayed).collect());
    let built = build(&job, &batches).unwrap();
    let counts: Vec<_> = built.parts.iter().map(|part| part.record_count).collect();
    assert_eq!(counts, [u32::try_from(PART_RECORDS_MAX).unwrap(), 1]);
}

#[test]
fn timestamps_too_far_apart_for_one_batch_are_copied_in_two() {
    let sample_of = |timestamp_ms| Sample {
        timestamp_ms,
        ..Sample::of_value(b"v")
    };
    let far = [
        opened(0, APPENDED, &[sample_of(-1)]),
        opened(1, APPENDED, &[sample_of(i64::MAX)]),
    ];
    let built = build(&job(SOURCE, vec![failed_once(0), failed_once(1)]), &far).unwrap();
    let times = |sample: &Sample| sample.timestamp_ms;
    let copies = copied(&built.parts, RETRY);
    assert_eq!(copies.iter().map(times).collect::<Vec<_>>(), [-1, i64::MAX]);
    assert_eq!(built.parts.len(), 2);
}

#[test]
fn an_answer_that_is_full_leaves_the_rest_to_be_ordered_again() {
    let value = vec![7; 10 << 20];
    let batches: Vec<OpenBatch> = (0..5)
        .map(|offset| opened(offset, APPENDED, &[Sample::of_value(&value)]))
        .collect();
    let mut left: Vec<Copy> = (0..5).map(failed_once).collect();
    let mut copied_in_all = 0;
    let mut answers = 0;
    while !left.is_empty() {
        let job = job(SOURCE, left);
        let first = job.copies[0].offset;
        let built = build(
            &job,
            batches.iter().filter(|batch| batch.base_offset >= first),
        )
        .unwrap();
        let copies = copied(&built.parts, RETRY);
        let bytes: usize = copies
            .iter()
            .map(|copy| copy.value.as_ref().unwrap().len())
            .sum();
        assert!(bytes <= COPIES_BYTES_MAX && !copies.is_empty());
        assert_eq!(built.missing, []);
        copied_in_all += copies.len();
        answers += 1;
        let is_left = |copy: &Copy| built.left.contains(&copy.offset);
        left = job.copies.into_iter().filter(is_left).collect();
    }
    assert_eq!((copied_in_all, answers), (5, 2));
}

#[test]
fn records_that_are_not_there_are_missing_and_the_others_copied() {
    let batches = [
        opened(5, APPENDED, &numbered(3)),
        opened(20, APPENDED, &numbered(1)),
    ];
    let copies = [1, 4, 6, 7, 8, 19, 20, 21].map(failed_once);
    let built = build(&job(SOURCE, copies.into()), &batches).unwrap();
    assert_eq!(built.missing, [1, 4, 8, 19, 21].map(at));
    assert_eq!(built.left, []);
    let origins = copied(&built.parts, RETRY);
    let origins = origins
        .iter()
        .map(|copy| copy.header("origin-offset").unwrap());
    assert_eq!(origins.collect::<Vec<_>>(), ["6", "7", "20"]);
}

#[test]
fn a_job_without_records_or_without_anything_to_read_is_answered() {
    let none = build(
        &job(SOURCE, Vec::new()),
        [&opened(0, APPENDED, &numbered(1))],
    )
    .unwrap();
    assert_eq!(none, Copies::default());
    let gone = build(&job(SOURCE, vec![failed_once(3)]), []).unwrap();
    assert_eq!((gone.parts.len(), gone.missing), (0, vec![at(3)]));
}

#[test]
fn reads_reach_over_small_gaps_and_not_over_large_ones() {
    let job = job(SOURCE, [10, 12, 70, 200].map(failed_once).into());
    let mut builder = CopyBuilder::new(&job);
    assert_eq!(
        (builder.wanted(), builder.wanted_until()),
        (Some(at(10)), at(71))
    );
    builder.miss_until(at(71));
    assert_eq!(
        (builder.wanted(), builder.wanted_until()),
        (Some(at(200)), at(201))
    );
    builder.miss_until(Offset::MAX);
    assert_eq!(builder.wanted(), None);
}

#[test]
fn small_batches_are_stored_as_they_are_and_large_ones_compressed() {
    let job = job(SOURCE, vec![failed_once(0)]);
    for (bytes, codec) in [(10, Codec::None), (100_000, Codec::Lz4)] {
        let batch = opened(0, APPENDED, &[Sample::of_value(&vec![7; bytes])]);
        let built = build(&job, [&batch]).unwrap();
        assert_eq!(read_header(&built.parts[0].body).unwrap().codec, codec);
    }
}

#[test]
fn the_same_job_gives_the_same_bytes() {
    let batch = opened(0, APPENDED, &numbered(2));
    let job = job(SOURCE, vec![failed_once(0), dead_at_once(1)]);
    assert_eq!(
        build(&job, [&batch]).unwrap(),
        build(&job, [&batch]).unwrap()
    );
}

#[test]
fn t35_a_huge_stack_is_cut_in_the_middle_of_no_character() {
    let stack = "\u{1f980}".repeat((1 << 20) / 4 + 1);
    let mut copy = dead_at_once(0);
    let failed = copy.failed.as_mut().unwrap();
    failed.text = super::samples::text("E", "m", &format!("x{stack}"));
    let built = build(
        &job(SOURCE, vec![copy]),
        [&opened(0, APPENDED, &numbered(1))],
    )
    .unwrap();
    let stack = copied(&built.parts, DEAD_LETTER)[0]
        .header("error-stack")
        .unwrap();
    assert!(stack.len() <= ReservedHeader::ErrorStack.bytes_max(true));
    assert!(stack.contains("bytes removed") && stack.starts_with("x\u{1f980}"));
}

#[test]
fn t36_a_record_of_the_largest_size_becomes_a_dead_letter_intact() {
    let largest = Sample::of_value(&vec![7; 16 << 20]);
    let mut copy = dead_at_once(0);
    let failed = copy.failed.as_mut().unwrap();
    failed.text = super::samples::text(&"c".repeat(999), &"m".repeat(9_999), &"s".repeat(99_999));
    let batch = opened(0, APPENDED, std::slice::from_ref(&largest));
    let built = build(&job(SOURCE, vec![copy]), [&batch]).unwrap();
    let dead = copied(&built.parts, DEAD_LETTER).remove(0);
    assert_eq!(dead.header("error-code").unwrap().len(), 128);
    assert_eq!(dead.header("error-message").unwrap().len(), 1_024);
    assert_eq!(dead.without_reserved(), largest);
}

#[test]
fn a_failed_record_first_appended_too_long_ago_is_dead_and_others_are_not() {
    let delayed = Copy {
        failed: None,
        to: retry(2, 0),
        ..failed_once(2)
    };
    let mut job = job(SOURCE, vec![failed_once(0), failed_once(1), delayed]);
    job.dead_before = Some(WallMs(APPENDED.0 + 1));
    let old = opened(0, APPENDED, &numbered(1));
    let younger = opened(1, WallMs(APPENDED.0 + 1), &numbered(1));
    let unfailed = opened(2, APPENDED, &numbered(1));
    let copies = build(&job, [&old, &younger, &unfailed]).unwrap();
    assert_eq!(copies.aged, [at(0)]);
    let [dead] = &copied(&copies.parts, DEAD_LETTER)[..] else {
        panic!("one record")
    };
    assert_eq!(dead.header("dead-reason").unwrap(), "max_age");
    assert_eq!(copied(&copies.parts, RETRY).len(), 2);
    assert_eq!(copies.retries.iter().map(|it| it.1.len()).sum::<usize>(), 2);
}
