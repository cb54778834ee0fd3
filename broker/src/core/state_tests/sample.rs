//! A state to try changes on.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Offset, PartitionId, Sequence, TopicId, WallMs};

use crate::core::applied::{Applied, Outcome};
use crate::core::command::{
    Append, AppendPart, Change, Command, CommitOffsets, CreateGroup, CreateTopic, GroupTopic,
    HandOut, OffsetCommit, RequestId, Settle, Stamp,
};
use crate::core::dead_letters::{Cause, Death};
use crate::core::durable_groups::Progress;
use crate::core::failure::ErrorClass;
use crate::core::forecast::RoundForecast;
use crate::core::handed_out::HandedOut;
use crate::core::message_ids::PartIds;
use crate::core::refusal::Refusal;
use crate::core::request::{Appended, LeaseId};
use crate::core::settings::{GroupSettings, TopicSettings};
use crate::core::state::State;
use crate::names::{GroupName, TopicName};

pub(super) fn topic_id(number: u8) -> TopicId {
    TopicId([number; 16])
}

pub(super) fn at(topic: u8, partition: u32) -> PartitionId {
    PartitionId {
        topic: topic_id(topic),
        partition,
    }
}

pub(super) fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(super) fn topic_name(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

pub(super) fn group_name(name: &str) -> GroupName {
    GroupName::parse(name).unwrap()
}

pub(super) fn part(partition: PartitionId, record_count: u32) -> AppendPart {
    let body = Bytes::from_static(b"a record batch");
    AppendPart {
        partition,
        record_count,
        producer: None,
        predicted: None,
        delays: Vec::new(),
        ids: PartIds::default(),
        body,
    }
}

/// As many records die, of one cause.
pub(super) fn deaths(count: u32) -> Vec<Death> {
    let death = |number| Death {
        at: WallMs(1_000 + i64::from(number)),
        bytes: 100,
        cause: Cause {
            class: Some(ErrorClass::Permanent),
            code: "E_IO".to_owned(),
            fingerprint: Some(0xfeed),
        },
        replays: 0,
        replayed_by: None,
        parked_key: None,
    };
    (0..count).map(death).collect()
}

pub(super) fn produced(
    partition: PartitionId,
    (id, epoch, base_sequence): (i64, i16, i32),
    record_count: u32,
) -> AppendPart {
    let producer = Some(ProducerStamp {
        id,
        epoch,
        base_sequence,
    });
    AppendPart {
        producer,
        ..part(partition, record_count)
    }
}

pub(super) fn append(parts: Vec<AppendPart>) -> Change {
    Change::Append(Append {
        request: None,
        parts,
    })
}

pub(super) fn request(topic: u8, id: &str, content_hash: u64, parts: Vec<AppendPart>) -> Change {
    let request = RequestId {
        topic: topic_id(topic),
        id: id.to_owned(),
        content_hash,
    };
    Change::Append(Append {
        request: Some(request),
        parts,
    })
}

pub(super) fn create_topic(topic: u8, name: &str, partitions: u32) -> Change {
    Change::CreateTopic(CreateTopic {
        topic: topic_id(topic),
        name: topic_name(name),
        partitions,
        settings: TopicSettings::default(),
    })
}

/// Derived topics of topic `n` of a group get the ids `n + 100` and `n + 150`.
pub(super) fn group_topic(topic: u8, start: &[u64]) -> GroupTopic {
    GroupTopic {
        topic: topic_id(topic),
        start: start.iter().map(|start| offset(*start)).collect(),
        retry: topic_id(topic + 100),
        dead_letter: topic_id(topic + 150),
    }
}

pub(super) fn create_group(name: &str, topics: Vec<GroupTopic>) -> Change {
    let settings = GroupSettings::default();
    Change::CreateGroup(CreateGroup {
        group: group_name(name),
        settings,
        topics,
    })
}

pub(super) fn delete_topic(topic: u8, force: bool) -> Change {
    Change::DeleteTopic {
        topic: topic_id(topic),
        force,
    }
}

pub(super) fn delete_group(name: &str, purge_dead_letters: bool) -> Change {
    Change::DeleteGroup {
        group: group_name(name),
        purge_dead_letters,
    }
}

pub(super) fn move_log_start(partition: PartitionId, start: u64) -> Change {
    Change::MoveLogStart {
        partition,
        start: offset(start),
    }
}

pub(super) fn commit(name: &str, to: &[(PartitionId, u64)], may_move_back: bool) -> Change {
    let one = |(partition, to): &(PartitionId, u64)| OffsetCommit {
        partition: *partition,
        offset: offset(*to),
        metadata: format!("at {to}"),
    };
    let offsets = to.iter().map(one).collect();
    Change::CommitOffsets(CommitOffsets {
        group: group_name(name),
        offsets,
        may_move_back,
    })
}

pub(super) fn reset(name: &str, to: &[(PartitionId, u64)]) -> Change {
    let positions = to
        .iter()
        .map(|(partition, to)| (*partition, offset(*to)))
        .collect();
    Change::ResetOffsets {
        group: group_name(name),
        positions,
    }
}

/// A settlement of nothing yet, with the group's id and resets as they are.
pub(super) fn settle_of(bench: &Bench, name: &str, at: PartitionId) -> Settle {
    let group = bench.state.groups.get(&group_name(name)).unwrap();
    let resets = group.progress(at).map_or(0, Progress::reset_count);
    Settle::of(group.name.clone(), group.id, resets, at)
}

/// Records of group `email` given to a member.
pub(super) fn hand_out(bench: &Bench, at: PartitionId, (first, last): (u64, u64)) -> HandOut {
    let settle = settle_of(bench, "email", at);
    HandOut {
        group: settle.group,
        group_id: settle.group_id,
        reset_count: settle.reset_count,
        partition: at,
        first: offset(first),
        out: HandedOut {
            last: offset(last),
            attempt: 1,
            lease: LeaseId(first + 1),
            run: 1,
            member: "m-1".into(),
            ack_timeout_ms: 30_000,
        },
    }
}

/// A state that grows by changes, all of them checked against each other.
#[derive(Debug, Default)]
pub(super) struct Bench {
    pub(super) state: State,
    pub(super) stamp: Stamp,
    /// What was applied, refused commands too.
    pub(super) log: Vec<Command>,
}

impl Bench {
    /// Topics 1 (`orders`, two partitions) and 2 (`bills`, one).
    pub(super) fn with_topics() -> Self {
        let mut bench = Self::default();
        bench.must(create_topic(1, "orders", 2));
        bench.must(create_topic(2, "bills", 1));
        bench
    }

    /// As [`Self::with_topics`], ten records in each partition, and group `email` on `orders`.
    pub(super) fn with_group() -> Self {
        let mut bench = Self::with_topics();
        bench.must(append(vec![
            part(at(1, 0), 10),
            part(at(1, 1), 10),
            part(at(2, 0), 10),
        ]));
        bench.must(create_group("email", vec![group_topic(1, &[])]));
        bench
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.stamp.running_ms += ms;
        self.stamp.wall.0 += i64::try_from(ms).unwrap();
    }

    /// Predicts, applies, and compares what check, predict and apply say.
    pub(super) fn run(&mut self, mut change: Change) -> Applied {
        let checked = self.state.check(&change, self.stamp);
        let mut round = RoundForecast::default();
        let predicted = if let Change::Append(append) = &mut change {
            self.state.predict(&mut round, append, self.stamp)
        } else if let Change::Settle(settle) = &mut change {
            self.state.predict_settle(&mut round, settle, self.stamp)
        } else if let Change::Replay(step) = &mut change {
            self.state.predict_replay(&mut round, step, self.stamp)
        } else {
            checked.clone()
        };
        assert_eq!(predicted, checked, "predict and check agree on {change:?}");
        let before = self.state.encode();
        let record = self.state.broker;
        let command = Command {
            stamp: self.stamp,
            change,
        };
        self.log.push(command.clone());
        let sequence = Sequence::new(u64::try_from(self.log.len()).unwrap());
        let applied = self.state.apply(sequence, &command);
        self.state.check_invariants();
        assert_eq!(
            applied.outcome.as_ref().err(),
            checked.as_ref().err(),
            "{command:?}"
        );
        if applied.outcome.is_err() {
            assert_eq!(applied.effects, Vec::new());
            let after = std::mem::replace(&mut self.state.broker, record);
            assert_eq!(
                self.state.encode(),
                before,
                "a refusal changed the state: {command:?}"
            );
            self.state.broker = after;
        }
        applied
    }

    /// The broker stops and starts with what a checkpoint holds, and one without a checkpoint
    /// reads the same from the log.
    pub(super) fn restart(&mut self) {
        let bytes = self.state.encode();
        let mut replayed = State::new();
        for (sequence, command) in (1..).zip(&self.log) {
            let (head, bulk) = command.encode();
            let command = Command::decode(head, bulk).unwrap();
            replayed.apply(Sequence::new(sequence), &command);
        }
        assert_eq!(replayed.encode(), bytes, "the log gives the same state");
        self.state = State::decode(&bytes).unwrap();
        assert_eq!(self.state.encode(), bytes);
    }

    pub(super) fn must(&mut self, change: Change) -> Outcome {
        self.run(change).outcome.unwrap()
    }

    pub(super) fn refused(&mut self, change: Change) -> Refusal {
        self.run(change).outcome.unwrap_err()
    }

    pub(super) fn appended(&mut self, change: Change) -> Appended {
        let outcome = self.must(change);
        let Outcome::Appended(appended) = outcome else {
            panic!("an append had the outcome {outcome:?}")
        };
        appended
    }

    /// Base offset and whether it is a duplicate, of a single part.
    pub(super) fn produce(&mut self, part: AppendPart) -> Result<(u64, bool), Refusal> {
        let outcome = self.run(append(vec![part])).outcome?;
        let Outcome::Appended(appended) = outcome else {
            panic!("an append had the outcome {outcome:?}")
        };
        let part = appended.parts[0];
        Ok((part.base_offset.get(), part.duplicate))
    }

    pub(super) fn init(&mut self, name: &str) -> (i64, i16) {
        let name = name.to_owned();
        let outcome = self.must(Change::InitProducer { name });
        let Outcome::Producer { id, epoch } = outcome else {
            panic!("an id had the outcome {outcome:?}")
        };
        (id, epoch)
    }

    pub(super) fn settle(&self, name: &str, at: PartitionId, ranges: &[(u64, u64)]) -> Change {
        let ranges = ranges
            .iter()
            .map(|(first, last)| (offset(*first), offset(*last)));
        Change::Settle(Settle {
            ranges: ranges.collect(),
            ..settle_of(self, name, at)
        })
    }

    pub(super) fn progress(&self, name: &str, at: PartitionId) -> &Progress {
        let group = self.state.groups.get(&group_name(name)).unwrap();
        group.progress(at).unwrap()
    }

    /// Low watermark and done-ahead records.
    pub(super) fn done(&self, name: &str, at: PartitionId) -> (u64, Vec<u64>) {
        let progress = self.progress(name, at);
        let runs = progress.done().runs();
        let ahead = runs
            .flat_map(|run| run.first.get()..run.end.get())
            .collect();
        (progress.low().get(), ahead)
    }

    pub(super) fn wall(&self) -> WallMs {
        self.stamp.wall
    }
}
