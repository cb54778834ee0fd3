//! Commands as bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use varvelog_store::WallMs;

use super::sample::*;
use crate::core::codec::{COMMAND_VERSION, CommandError};
use crate::core::command::{Change, Command, CreateGroup, CreateTopic, Settle, Stamp};
use crate::core::settings::{GroupSettings, TopicSettings};

/// One command of each kind under a name, with every optional field there once.
pub(super) fn every_kind() -> Vec<(&'static str, Command)> {
    let stamp = Stamp {
        wall: WallMs(1_700_000_000_123),
        running_ms: 4_567,
    };
    let kinds = append_kinds()
        .into_iter()
        .chain(topic_kinds())
        .chain(group_kinds());
    kinds
        .map(|(name, change)| (name, Command { stamp, change }))
        .collect()
}

fn append_kinds() -> [(&'static str, Change); 2] {
    let mut first = produced(at(1, 0), (7, 2, i32::MAX), 3);
    first.predicted = Some(offset(41));
    let parts = vec![first, part(at(2, 1), 1)];
    let with_all = request(1, "req-1", 0x0123_4567_89ab_cdef, parts);
    [("append", with_all), ("append empty", append(vec![]))]
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
    let settings = GroupSettings {
        paused: true,
        ..GroupSettings::default()
    };
    let create = CreateGroup {
        group: group.clone(),
        settings,
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
        group: group.clone(),
        group_id: 3,
        reset_count: 1,
        partition: at(1, 4),
        ranges: vec![(offset(10), offset(19)), (offset(25), offset(25))],
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
    numbers.dedup();
    assert_eq!(numbers, (1..=18).collect::<Vec<u8>>());
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
    for kind in [0, 19, 255] {
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
