//! Commands as bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use varvelog_store::WallMs;

use super::replay_kinds::replay_kinds;
use super::sample::*;
use crate::core::codec::{COMMAND_VERSION, CommandError};
use crate::core::command::{
    Append, Change, Command, CreateGroup, CreateTopic, HandBack, HandOut, MakeDue, RequestId,
    Settle, Stamp,
};
use crate::core::failure::{
    DeadReason, Ending, ErrorClass, FailedAttempt, FailureNote, FailureText, Wait,
};
use crate::core::handed_out::HandedOut;
use crate::core::message_ids::{FirstAppend, IdHash, PartIds, Repeated};
use crate::core::request::LeaseId;
use crate::core::retries::RetryEntry;
use crate::core::retry_policy::{ErrorRule, RetryPolicy, Schedule};
use crate::core::settings::{
    AdmissionSettings, DeadLetterSettings, GroupMode, GroupSettings, OnFailure, OnHeadDead,
    TopicSettings,
};

/// One command of each kind under a name, with every optional field there once.
pub(super) fn every_kind() -> Vec<(&'static str, Command)> {
    let stamp = Stamp {
        wall: WallMs(1_700_000_000_123),
        running_ms: 4_567,
    };
    let kinds = append_kinds()
        .into_iter()
        .chain(topic_kinds())
        .chain(group_kinds())
        .chain(delivery_kinds())
        .chain(replay_kinds());
    kinds
        .map(|(name, change)| (name, Command { stamp, change }))
        .collect()
}

fn append_kinds() -> [(&'static str, Change); 2] {
    let mut first = produced(at(1, 0), (7, 2, i32::MAX), 3);
    first.predicted = Some(offset(41));
    first.delays = vec![(0, WallMs(1_700_000_009_000)), (2, WallMs(i64::MAX))];
    let mut identified = part(at(2, 1), 1);
    identified.predicted = Some(offset(5));
    identified.ids = ids(&[(0, "m-1")], &[(1, "m-2", 70)]);
    let mut repeated = part(at(2, 1), 0);
    repeated.ids = ids(&[], &[(0, "m-3", 71), (3, "m-4", 72)]);
    repeated.body = Bytes::new();
    let parts = vec![first, part(at(2, 1), 1), identified, repeated];
    let with_all = request(1, "req-1", 0x0123_4567_89ab_cdef, parts);
    [("append", with_all), ("append empty", append(vec![]))]
}

fn ids(fresh: &[(u32, &str)], repeated: &[(u32, &str, u64)]) -> PartIds {
    let fresh = fresh.iter();
    let repeated = repeated.iter().map(|(number, id, at)| Repeated {
        number: *number,
        hash: IdHash::of(id),
        first: FirstAppend {
            partition: 9,
            offset: offset(*at),
        },
    });
    PartIds {
        fresh: fresh
            .map(|(number, id)| (*number, IdHash::of(id)))
            .collect(),
        repeated: repeated.collect(),
    }
}

fn topic_kinds() -> [(&'static str, Change); 8] {
    let topic = topic_id(1);
    let settings = TopicSettings {
        retention_bytes: 1 << 40,
        labels: BTreeMap::from([("team".into(), "mail".into())]),
        ..TopicSettings::default()
    };
    let create = CreateTopic {
        topic,
        name: topic_name("orders"),
        partitions: 6,
        settings: settings.clone(),
    };
    let (name, used_since) = ("importer".into(), WallMs(-5));
    [
        ("create topic", Change::CreateTopic(create)),
        ("update topic", Change::UpdateTopic { topic, settings }),
        ("add partitions", Change::AddPartitions { topic, total: 12 }),
        ("delete topic", delete_topic(1, true)),
        ("forget topic", Change::ForgetTopic { topic }),
        ("move log start", move_log_start(at(1, 3), 1 << 33)),
        ("init producer", Change::InitProducer { name }),
        ("expire producers", Change::ExpireProducers { used_since }),
    ]
}

fn group_kinds() -> [(&'static str, Change); 9] {
    let group = group_name("email");
    let create = CreateGroup {
        group: group.clone(),
        settings: every_setting(),
        topics: vec![group_topic(1, &[5, 9]), group_topic(2, &[])],
    };
    let add = Change::AddGroupTopics {
        group: group.clone(),
        topics: vec![group_topic(3, &[1])],
    };
    let update = Change::UpdateGroup {
        group: group.clone(),
        settings: GroupSettings::default(),
    };
    let settle = Settle {
        ranges: vec![(offset(10), offset(19)), (offset(25), offset(25))],
        ..Settle::of(group.clone(), 3, 1, at(1, 4))
    };
    let positions = [(at(1, 0), 5), (at(1, 1), 0)];
    [
        ("create group", Change::CreateGroup(create)),
        ("add group topics", add),
        ("update group", update),
        ("delete group", delete_group("email", true)),
        ("next generation", Change::NextGeneration { group }),
        ("commit offsets", commit("email", &positions, true)),
        ("settle", Change::Settle(settle)),
        ("reset offsets", reset("email", &[(at(1, 0), 5)])),
        ("broker started", Change::BrokerStarted { clean: true }),
    ]
}

/// None of them the default.
fn every_setting() -> GroupSettings {
    GroupSettings {
        mode: GroupMode::Queue,
        on_failure: OnFailure::Hold,
        on_head_dead: OnHeadDead::Halt,
        retry: RetryPolicy {
            deliveries_max: 9,
            schedule: Schedule::Exponential {
                base_ms: 1_000,
                multiplier_permille: 2_500,
                delay_max_ms: 60_000,
                clamp_after_jitter: true,
            },
            jitter_max_ms: 500,
            jitter_ppm: 250_000,
            age_max_ms: 86_400_000,
            rules: vec![ErrorRule {
                pattern: "VAL_*".into(),
                permanent: true,
            }],
            permanent_by_default: true,
        },
        dead_letter: DeadLetterSettings {
            off: true,
            bytes_max: 1 << 20,
            retention_age_ms: 1_000,
            drop_oldest_when_full: true,
            omit_error_message: true,
            omit_error_stack: true,
            replays_max: 7,
        },
        visibility_timeout_ms: 31_000,
        session_timeout_ms: 46_000,
        in_flight_max: 77,
        lease_total_max_ms: 3_700_000,
        isolate_after: 4,
        releases_max: 50,
        retry_share_permille: 333,
        circuit_breaker: true,
        retain_until_consumed: true,
        paused: true,
        admission: AdmissionSettings {
            depth_max: 1_000,
            age_max_ms: 60_000,
            bytes_max: 1 << 30,
            resume_permille: 750,
            observe: true,
        },
    }
}

pub(super) fn note_of(wait: Wait) -> FailureNote {
    let failed = FailedAttempt {
        attempt: 2,
        at: WallMs(1_700_000_000_100),
        class: ErrorClass::Timeout,
        code: "E42".into(),
    };
    FailureNote {
        failures: 2,
        class: ErrorClass::Timeout,
        wait,
        first_failure: WallMs(1_700_000_000_000),
        text: FailureText {
            code: "E42".into(),
            message: "no answer".into(),
            stack: "main".into(),
        },
        consumer: "worker-1".into(),
        log: vec![failed],
    }
}

fn delivery_kinds() -> [(&'static str, Change); 4] {
    let group = group_name("email");
    let entry = |due, suspect| RetryEntry {
        due: WallMs(due),
        origin: offset(10),
        failures: 3,
        suspect,
    };
    let waits = [
        Wait::Ready,
        Wait::Until(WallMs(1_700_000_009_000)),
        Wait::Room(DeadReason::MaxAge),
        Wait::Operator(DeadReason::ParkedKey),
    ];
    let notes = (30..)
        .zip(waits)
        .map(|(at, wait)| (offset(at), note_of(wait)));
    let settle = Settle {
        ranges: vec![(offset(10), offset(12)), (offset(25), offset(25))],
        endings: vec![
            (offset(10), Ending::Retried),
            (offset(12), Ending::DeadLettered),
            (offset(25), Ending::Skipped),
        ],
        notes: notes.collect(),
        parked: vec![7, u64::MAX],
        append: Append {
            request: Some(RequestId {
                topic: topic_id(2),
                id: "ack".into(),
                content_hash: 5,
            }),
            parts: vec![part(at(151, 4), 1), part(at(101, 4), 2), part(at(2, 0), 3)],
        },
        retries: vec![(1, vec![entry(1_700_000_001_000, true), entry(0, false)])],
        deaths: vec![(0, deaths(1))],
        ..Settle::of(group.clone(), 3, 1, at(1, 4))
    };
    let hand_out = HandOut {
        group: group.clone(),
        group_id: 3,
        reset_count: 1,
        partition: at(1, 4),
        first: offset(20),
        out: HandedOut {
            last: offset(29),
            attempt: 2,
            lease: LeaseId(77),
            run: 5,
            member: "m-1".into(),
            ack_timeout_ms: 30_000,
        },
    };
    let back = HandBack {
        group: group.clone(),
        group_id: 3,
        partition: at(1, 4),
        ranges: vec![(offset(20), offset(22)), (offset(27), offset(29))],
    };
    let due = MakeDue {
        group,
        records: vec![(at(1, 4), offset(31)), (at(101, 4), offset(0))],
    };
    [
        ("settle with copies", Change::Settle(settle)),
        ("hand out", Change::HandOut(hand_out)),
        ("hand back", Change::HandBack(back)),
        ("make due", Change::MakeDue(due)),
    ]
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn the_bytes_of_each_kind_are_those_of_the_fixture() {
    let mut lines = String::new();
    for (name, command) in every_kind() {
        let (head, bulk) = command.encode();
        writeln!(lines, "{name}: {}", hex(&head)).unwrap();
        for body in bulk {
            writeln!(lines, "  bulk: {}", hex(&body)).unwrap();
        }
    }
    let fixture = include_str!("../../../fixtures/commands.txt");
    assert_eq!(
        lines, fixture,
        "the layout changed: it needs another version"
    );
}

#[test]
fn every_kind_decodes_to_what_was_encoded() {
    for (name, command) in every_kind() {
        let (head, bulk) = command.encode();
        assert_eq!(Command::decode(head, bulk), Ok(command), "{name}");
    }
}

#[test]
fn every_kind_has_a_number_of_its_own() {
    let mut numbers: Vec<u8> = every_kind()
        .iter()
        .map(|(_, one)| one.encode().0[1])
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..=25).collect::<Vec<u8>>());
}

#[test]
fn a_cut_command_is_refused_wherever_it_is_cut() {
    for (name, command) in every_kind() {
        let (head, bulk) = command.encode();
        for end in 0..head.len() {
            let decoded = Command::decode(&head[..end], bulk.clone());
            assert!(
                matches!(decoded, Err(CommandError::Truncated)),
                "{name} cut at {end}"
            );
        }
        let longer = [head.as_ref(), &[0]].concat();
        assert_eq!(
            Command::decode(longer, bulk),
            Err(CommandError::Trailing),
            "{name}"
        );
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_another_command_but_never_a_panic() {
    for (name, command) in every_kind() {
        let (head, bulk) = command.encode();
        for bit in 0..head.len() * 8 {
            let mut flipped = head.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Command::decode(&flipped, bulk.clone()) {
                assert_ne!(other, command, "{name}, bit {bit}");
                assert_eq!(other.encode().0, flipped, "one command has one encoding");
            }
        }
    }
}

#[test]
fn other_versions_kinds_and_bulk_are_refused() {
    let command = Command {
        stamp: Stamp::default(),
        change: append(vec![part(at(1, 0), 1)]),
    };
    let (head, bulk) = command.encode();
    let with = |at: usize, byte: u8| {
        let mut other = head.to_vec();
        other[at] = byte;
        other
    };
    let newer = COMMAND_VERSION + 1;
    let decoded = Command::decode(with(0, newer), bulk.clone());
    assert_eq!(decoded, Err(CommandError::Version(newer)));
    for kind in [0, 26, 255] {
        assert_eq!(
            Command::decode(with(1, kind), bulk.clone()),
            Err(CommandError::Kind(kind))
        );
    }
    let none = Command::decode(&head, vec![]);
    assert_eq!(
        none,
        Err(CommandError::Bulk {
            expected: 1,
            got: 0
        })
    );
    let two = Command::decode(&head, vec![Bytes::new(), Bytes::new()]);
    assert_eq!(
        two,
        Err(CommandError::Bulk {
            expected: 1,
            got: 2
        })
    );
    let started = Command {
        stamp: Stamp::default(),
        change: Change::BrokerStarted { clean: true },
    };
    let bulky = Command::decode(started.encode().0, vec![Bytes::new()]);
    assert_eq!(
        bulky,
        Err(CommandError::Bulk {
            expected: 0,
            got: 1
        })
    );
}

#[test]
fn a_count_beyond_what_follows_allocates_nothing() {
    let command = Command {
        stamp: Stamp::default(),
        change: reset("email", &[]),
    };
    let mut head = command.encode().0.to_vec();
    let at = head.len() - 4;
    head[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Command::decode(&head, vec![]), Err(CommandError::Truncated));
}
