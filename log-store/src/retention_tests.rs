use super::*;

fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

/// Segments of ten records and 100 bytes each; the last record of each is `10 * n` ms old at time
/// 1,000, the newest segment last.
fn segments(count: u64) -> Vec<SegmentInfo> {
    (0..count)
        .map(|at| SegmentInfo {
            base: offset(at * 10),
            end: offset(at * 10 + 10),
            bytes: 100,
            append_time_max: WallMs(1000 - 10 * i64::try_from(count - 1 - at).unwrap()),
            append_time_min: WallMs(0),
            sealed: at + 1 < count,
        })
        .collect()
}

fn input(segments: &[SegmentInfo]) -> RetentionInput<'_> {
    RetentionInput {
        segments,
        start: Offset::ZERO,
        bytes: segments
            .iter()
            .map(|segment| u64::from(segment.bytes))
            .sum(),
        has_active: true,
        now: WallMs(1000),
        is_clock_trusted: true,
    }
}

fn by_age(age_ms_max: u64) -> RetentionPolicy {
    RetentionPolicy {
        age_ms_max: Some(age_ms_max),
        bytes_max: None,
    }
}

fn by_size(bytes_max: u64) -> RetentionPolicy {
    RetentionPolicy {
        age_ms_max: None,
        bytes_max: Some(bytes_max),
    }
}

#[test]
fn without_a_policy_and_without_segments_nothing_goes() {
    let some = segments(30);
    let kept = Retention {
        start: Offset::ZERO,
        roll_active: false,
        is_capped: false,
    };
    assert_eq!(retain(&input(&some), &RetentionPolicy::default()), kept);
    assert_eq!(retain(&input(&[]), &by_age(0)), kept);
    assert_eq!(retain(&input(&[]), &by_size(0)), kept);
}

#[test]
fn age_takes_whole_segments_whose_newest_record_is_past_it() {
    let three = segments(3);
    for (age, start, roll_active) in [(21, 0, false), (20, 0, false), (19, 10, false)] {
        let decided = retain(&input(&three), &by_age(age));
        assert_eq!(decided.start, offset(start), "{age}");
        assert_eq!(decided.roll_active, roll_active);
    }
}

#[test]
fn age_takes_a_tenth_at_most_in_a_pass_and_one_at_least_until_all_is_gone() {
    for count in [1, 2, 9, 10, 19, 20, 45, 200] {
        let all = segments(count);
        let mut left = all.as_slice();
        let mut passes = 0;
        loop {
            let mut pass = input(left);
            pass.has_active = false;
            pass.now = WallMs(i64::MAX);
            let decided = retain(&pass, &by_age(1));
            let gone = left
                .iter()
                .filter(|segment| segment.end <= decided.start)
                .count();
            if gone == 0 {
                break;
            }
            assert!(gone <= (left.len() / 10).max(1));
            assert_eq!(decided.is_capped, gone < left.len());
            left = &left[gone..];
            passes += 1;
        }
        assert!(left.is_empty());
        assert!(passes >= 10.min(count));
    }
}

#[test]
fn an_old_active_segment_is_sealed_first_and_taken_later() {
    let one = segments(1);
    let mut pass = input(&one);
    pass.now = WallMs(1100);
    let decided = retain(&pass, &by_age(50));
    assert_eq!((decided.start, decided.roll_active), (Offset::ZERO, true));
    pass.has_active = false;
    let decided = retain(&pass, &by_age(50));
    assert_eq!((decided.start, decided.roll_active), (offset(10), false));
}

#[test]
fn a_clock_in_doubt_stops_age_and_not_size() {
    let some = segments(10);
    let mut pass = input(&some);
    pass.is_clock_trusted = false;
    pass.now = WallMs(i64::MAX);
    let both = RetentionPolicy {
        age_ms_max: Some(0),
        bytes_max: Some(700),
    };
    assert_eq!(retain(&pass, &both).start, offset(30));
    assert_eq!(retain(&pass, &by_age(0)).start, Offset::ZERO);
    assert!(!retain(&pass, &both).roll_active);
}

#[test]
fn a_clock_far_back_takes_nothing() {
    let some = segments(10);
    let mut pass = input(&some);
    pass.now = WallMs(i64::MIN);
    assert_eq!(retain(&pass, &by_age(0)).start, Offset::ZERO);
}

#[test]
fn size_leaves_at_least_what_is_asked_for_and_never_takes_the_active_segment() {
    let ten = segments(10);
    for (limit, start) in [
        (1001, 0),
        (1000, 0),
        (901, 0),
        (900, 10),
        (801, 10),
        (250, 70),
    ] {
        assert_eq!(
            retain(&input(&ten), &by_size(limit)).start,
            offset(start),
            "{limit}"
        );
    }
    assert_eq!(retain(&input(&ten), &by_size(0)).start, offset(90));
    let mut pass = input(&ten);
    pass.bytes += 150;
    assert_eq!(
        retain(&pass, &by_size(1000)).start,
        offset(10),
        "what is not flushed counts"
    );
}

#[test]
fn the_start_never_moves_back() {
    let ten = segments(10);
    let mut pass = input(&ten);
    pass.start = offset(35);
    assert_eq!(retain(&pass, &by_size(900)).start, offset(35));
    assert_eq!(retain(&pass, &by_size(0)).start, offset(90));
}

#[test]
fn a_step_of_the_clock_is_more_than_an_hour_beside_the_monotonic_one() {
    let hour = 3_600_000;
    let at = |moved: i64, elapsed| clock_stepped(WallMs(50), WallMs(50 + moved), elapsed);
    assert!(!at(60_000, 60_000));
    assert!(!at(60_000 + hour, 60_000));
    assert!(at(60_001 + hour, 60_000));
    assert!(!at(60_000 - hour, 60_000));
    assert!(at(59_999 - hour, 60_000));
    assert!(clock_stepped(WallMs(i64::MIN), WallMs(i64::MAX), 0));
    assert!(!at(10 * hour, 36_000_000));
}
