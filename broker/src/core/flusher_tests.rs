use varvelog_store::WallMs;
use varvelog_store::batch::{BatchBuilder, Codec};
use varvelog_store::identity::Identity;
use varvelog_store::partition::ReadLimit;
use varvelog_store::sim_fs::{Call, Failure, SimDisk};
use varvelog_store::wal::WalConfig;
use varvelog_store::{FolderId, TopicId};

use super::*;
use crate::clock::MonoMs;
use crate::core::command::{Append, AppendPart, Change};
use crate::core::decide::{self, CountLimits};
use crate::core::engine::Engine;
use crate::core::forecast::RoundForecast;
use crate::core::message_ids::PartIds;
use crate::core::recover::{self, OpenOptions, Opened};
use crate::core::request::ChangeRequest;
use crate::core::settings::TopicSettings;
use crate::names::TopicName;

const NAME: &str = "t";
const PARTITIONS: u32 = 3;

/// A broker without threads: what the engine asks for, the test hands to the flusher.
struct Rig {
    disk: SimDisk,
    engine: Engine,
    flusher: Flusher,
}

impl Rig {
    /// A topic of which every partition has a record that is not flushed.
    fn new() -> Self {
        let disk = SimDisk::new();
        let options = OpenOptions {
            wal: WalConfig {
                file_bytes: 64 << 10,
            },
            open_segments_max: 4,
            fresh: Identity {
                folder: FolderId([1; 16]),
                cluster: [2; 16],
                node: [3; 16],
                feature_level: 1,
            },
            unflushed_bytes_max: 1 << 20,
            sync_each_max: 1,
        };
        let opened = recover::open(&disk.root(), &options, MonoMs(0)).unwrap();
        let Opened {
            engine, flusher, ..
        } = opened;
        let mut rig = Self {
            disk,
            engine,
            flusher,
        };
        rig.change(&ChangeRequest::CreateTopic {
            name: name(),
            partitions: PARTITIONS,
            settings: TopicSettings::default(),
        });
        for partition in 0..PARTITIONS {
            rig.append(partition);
        }
        rig.perform_all();
        rig
    }

    fn change(&mut self, request: &ChangeRequest) {
        let state = self.engine.applier.state();
        let limits = CountLimits::default();
        let changes = decide::decide(
            state,
            request,
            &|_| decide::Live::default(),
            &mut || [9; 16],
            &limits,
        );
        for change in changes.unwrap() {
            self.commit(change);
        }
    }

    fn append(&mut self, partition: u32) {
        let mut builder = BatchBuilder::new(Codec::None, 256);
        let none = std::iter::empty::<(&[u8], Option<&[u8]>)>();
        builder.push(None, None, Some(b"value"), none).unwrap();
        let part = AppendPart {
            partition: self.id(partition),
            record_count: 1,
            producer: None,
            predicted: None,
            delays: Vec::new(),
            ids: PartIds::default(),
            body: builder.finish().unwrap(),
        };
        let mut append = Append {
            request: None,
            parts: vec![part],
        };
        let (state, stamp) = (self.engine.applier.state(), self.engine.applier.stamp());
        let mut forecast = RoundForecast::default();
        state.predict(&mut forecast, &mut append, stamp).unwrap();
        self.commit(Change::Append(append));
    }

    fn commit(&mut self, change: Change) {
        let committed = self.engine.commit_now(change, WallMs(1), MonoMs(1));
        committed.unwrap().unwrap();
    }

    fn topic(&self) -> TopicId {
        let topics = &self.engine.applier.state().topics;
        topics.by_name(&name()).unwrap().id
    }

    fn id(&self, partition: u32) -> PartitionId {
        PartitionId {
            topic: self.topic(),
            partition,
        }
    }

    fn perform_all(&mut self) {
        for task in self.engine.applier.take_tasks() {
            self.flusher.perform(task).unwrap();
        }
    }

    fn flush(&mut self) -> Result<Done, FlushError> {
        let all = (0..PARTITIONS)
            .map(|partition| self.id(partition))
            .collect();
        self.flusher.perform(Task::Flush(all))
    }

    fn checkpoint(&mut self) -> Result<Done, FlushError> {
        self.engine.applier.request_checkpoint();
        let mut tasks = self.engine.applier.take_tasks();
        self.flusher.perform(tasks.pop().unwrap())
    }

    fn is_flushed(&self) -> bool {
        self.engine.applier.unflushed_bytes() == 0
    }

    /// Every partition has its record, wherever that is.
    fn can_be_read(&self) -> bool {
        let limit = ReadLimit {
            bytes_max: 1 << 20,
            batches_max: 10,
            until: Offset::MAX,
        };
        let catalog = self.engine.applier.view().catalog();
        let partitions = &catalog.by_id.get(&self.topic()).unwrap().partitions;
        partitions
            .iter()
            .all(|partition| partition.reader.read(Offset::ZERO, limit).unwrap().len() == 1)
    }
}

fn name() -> TopicName {
    TopicName::parse(NAME).unwrap()
}

#[test]
fn a_flush_without_room_or_descriptors_keeps_the_records_and_is_made_later() {
    for failure in [Failure::NoDescriptor, Failure::NoSpace] {
        for call in [Call::Create, Call::Open] {
            for nth in 1..8 {
                let mut rig = Rig::new();
                rig.disk.fail(call, nth, failure);
                assert_eq!(rig.flush().unwrap(), Done::Performed);
                assert!(rig.can_be_read(), "{call:?} {nth}");
                assert_eq!(rig.flush().unwrap(), Done::Performed);
                assert!(rig.is_flushed() && rig.can_be_read(), "{call:?} {nth}");
            }
        }
    }
}

#[test]
fn a_disk_that_fails_ends_the_flusher() {
    let mut rig = Rig::new();
    rig.disk.fail(Call::Create, 2, Failure::Broken);
    assert!(!rig.flush().unwrap_err().is_shortage());
}

#[test]
fn a_checkpoint_without_room_or_descriptors_is_postponed_and_loses_no_flush() {
    for failure in [Failure::NoDescriptor, Failure::NoSpace] {
        for nth in 1..12 {
            let mut rig = Rig::new();
            rig.disk.fail(Call::Create, nth, failure);
            if rig.checkpoint().unwrap() == Done::Postponed {
                assert!(rig.can_be_read(), "{nth}");
                rig.flusher.perform(Task::Flush(Vec::new())).unwrap();
                assert!(rig.is_flushed() && rig.can_be_read(), "{nth}");
            } else {
                assert!(nth > 9, "three files a partition are made");
            }
            let done = rig.checkpoint().unwrap();
            assert!(matches!(done, Done::Checkpointed { .. }), "{nth}");
        }
    }
}

#[test]
fn a_sync_that_fails_is_final_also_when_it_says_that_there_is_no_room() {
    for failure in [Failure::NoSpace, Failure::Broken] {
        let mut rig = Rig::new();
        rig.disk.fail(Call::SyncVolume, 1, failure);
        let failed = rig.checkpoint().unwrap_err();
        assert!(matches!(failed, FlushError::Sync(_)), "{failed}");
        assert!(!failed.is_shortage());
    }
}

#[test]
fn the_files_of_a_deleted_topic_go_later_when_they_cannot_be_looked_at() {
    let mut rig = Rig::new();
    rig.flush().unwrap();
    let topic = rig.topic();
    let remove = || Task::RemoveTopic(topic, PARTITIONS);
    rig.disk.fail(Call::Open, 2, Failure::NoDescriptor);
    let kept = rig.flusher.perform(remove()).unwrap();
    assert_eq!(kept, Done::TopicKept(topic));
    let removed = rig.flusher.perform(remove()).unwrap();
    assert_eq!(removed, Done::TopicRemoved(topic));
}
