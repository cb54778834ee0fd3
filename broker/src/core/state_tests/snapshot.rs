//! The state as bytes.

use proptest::prelude::*;

use varvelog_store::WallMs;

use super::codec::{hex, note_of};
use super::message_ids::named;
use super::replays::{die_parked, next_step, start_of};
use super::sample::*;
use crate::core::command::{Append, Change, Settle};
use crate::core::failure::{Ending, Wait};
use crate::core::retries::RetryEntry;
use crate::core::settings::{GroupSettings, OnFailure, OnHeadDead};
use crate::core::snapshot::{SNAPSHOT_VERSION, SnapshotError};
use crate::core::state::State;

/// A state in which every part of a snapshot is there.
fn sample() -> Bench {
    let mut bench = Bench::with_group();
    bench.pass(1_000);
    let (id, _) = bench.init("importer");
    bench.init("");
    bench.must(append(vec![
        produced(at(1, 0), (id, 0, 0), 2),
        produced(at(1, 1), (id, 0, 0), 1),
    ]));
    bench.must(request(2, "req-1", 99, vec![part(at(2, 0), 2)]));
    bench.must(bench.settle("email", at(1, 0), &[(0, 1), (4, 5), (9, 9)]));
    bench.must(commit("email", &[(at(1, 1), 6)], false));
    bench.must(move_log_start(at(1, 1), 7));
    bench.must(reset("email", &[(at(1, 1), 8)]));
    bench.must(parking("email"));
    bench.must(Change::Settle(with_copies(&bench)));
    let handed = |at, first| Change::HandOut(hand_out(&bench, at, (first, first + 1)));
    let (source, retry) = (handed(at(1, 0), 7), handed(at(101, 0), 0));
    bench.must(source);
    bench.must(retry);
    let mut delayed = part(at(2, 0), 3);
    delayed.delays = vec![(0, WallMs(9_000)), (2, WallMs(7_000))];
    bench.must(append(vec![delayed]));
    bench.must(create_group("sms", vec![group_topic(2, &[3])]));
    bench.must(delete_group("sms", false));
    bench.must(append(vec![named(at(2, 0), &["m-1", "m-2"])]));
    bench.pass(5);
    bench.must(request(
        2,
        "req-2",
        7,
        vec![named(at(2, 0), &["m-3", "m-1"])],
    ));
    bench.must(Change::BrokerStarted { clean: false });
    bench.must(die_parked(&bench));
    bench.must(start_of(&bench, &[(0, 0, 1)], |order| {
        order.request_id = "deploy-42".into();
        order.canary = 1;
    }));
    bench.must(next_step(&bench, 1));
    bench.must(start_of(&bench, &[(0, 0, 9)], |order| {
        order.note = "the rest".into();
    }));
    bench.must(create_topic(9, "gone", 1));
    bench.must(delete_topic(9, false));
    bench
}

/// Later records of a dead record's key follow it.
fn parking(group: &'static str) -> Change {
    let settings = GroupSettings {
        on_failure: OnFailure::Hold,
        on_head_dead: OnHeadDead::Park,
        ..GroupSettings::default()
    };
    let group = group_name(group);
    Change::UpdateGroup { group, settings }
}

/// Records 2 and 3 go to the retry topic, 6 is noted, 8 is dead.
fn with_copies(bench: &Bench) -> Settle {
    let entry = |origin, suspect| RetryEntry {
        due: WallMs(5_000),
        origin: offset(origin),
        failures: 1,
        suspect,
    };
    Settle {
        ranges: vec![(offset(2), offset(3)), (offset(8), offset(8))],
        endings: vec![
            (offset(2), Ending::Retried),
            (offset(3), Ending::Retried),
            (offset(8), Ending::DeadLettered),
        ],
        notes: vec![(offset(6), note_of(Wait::Until(WallMs(6_000))))],
        parked: vec![7, u64::MAX],
        append: Append {
            request: None,
            parts: vec![part(at(101, 0), 2), part(at(151, 0), 1)],
        },
        retries: vec![(0, vec![entry(2, false), entry(3, true)])],
        deaths: vec![(1, deaths(1))],
        ..settle_of(bench, "email", at(1, 0))
    }
}

#[test]
fn the_bytes_of_a_snapshot_are_those_of_the_fixture() {
    let bytes = hex(&sample().state.encode());
    let lines: Vec<&str> = bytes
        .as_bytes()
        .chunks(96)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let fixture: Vec<&str> = include_str!("../../../fixtures/snapshot.txt")
        .lines()
        .collect();
    assert_eq!(
        lines, fixture,
        "the layout changed: it needs another version"
    );
}

#[test]
fn a_snapshot_gives_the_state_again() {
    let bench = sample();
    let bytes = bench.state.encode();
    let again = State::decode(&bytes).unwrap();
    again.check_invariants();
    assert_eq!(again.encode(), bytes);
    assert_eq!(again.broker, bench.state.broker);
    let empty = State::new().encode();
    assert_eq!(State::decode(&empty).unwrap().encode(), empty);
}

#[test]
fn a_snapshot_of_another_version_is_refused() {
    let mut bytes = sample().state.encode().to_vec();
    bytes[0] = SNAPSHOT_VERSION + 1;
    let refused = State::decode(&bytes).unwrap_err();
    assert_eq!(refused, SnapshotError::Version(SNAPSHOT_VERSION + 1));
}

#[test]
fn a_cut_snapshot_is_refused_wherever_it_is_cut() {
    let bytes = sample().state.encode();
    for end in 0..bytes.len() {
        assert!(State::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    let longer = [bytes.as_ref(), &[0]].concat();
    assert_eq!(State::decode(&longer).unwrap_err(), SnapshotError::Trailing);
}

#[test]
fn a_flipped_bit_is_an_error_or_another_whole_state() {
    let bytes = sample().state.encode();
    let mut found = 0;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match State::decode(&flipped) {
            Ok(other) => {
                other.check_invariants();
                assert_eq!(
                    other.encode(),
                    flipped,
                    "one state has one encoding, bit {bit}"
                );
            }
            Err(_refused) => found += 1,
        }
    }
    assert!(
        found > bytes.len(),
        "most lengths, keys and references are checked"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = SNAPSHOT_VERSION;
        }
        if let Ok(state) = State::decode(&bytes) {
            state.check_invariants();
        }
    }
}
