//! The broker's engine on a simulated disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use varvelog_broker::clock::MonoMs;
use varvelog_broker::core::applied::Outcome;
use varvelog_broker::core::command::{Append, AppendPart, Change, Settle};
use varvelog_broker::core::decide::{self, CountLimits};
use varvelog_broker::core::engine::Engine;
use varvelog_broker::core::flusher::{Done, Flusher, Task};
use varvelog_broker::core::forecast::RoundForecast;
use varvelog_broker::core::message_ids::{IdHash, PartIds};
use varvelog_broker::core::recover::{self, OpenOptions, Opened, RecoverError};
use varvelog_broker::core::request::{ChangeRequest, CommitRequest, StartAt};
use varvelog_broker::core::settings::{GroupSettings, TopicSettings};
use varvelog_broker::names::{GroupName, TopicName};
use varvelog_store::batch::{BatchBuilder, Codec, Records};
use varvelog_store::fs::Dir;
use varvelog_store::identity::{self, Identity};
use varvelog_store::partition::{PartitionReader, ReadLimit};
use varvelog_store::sim_fs::SimDisk;
use varvelog_store::wal::WalConfig;
use varvelog_store::{FolderId, Offset, PartitionId, WallMs};

use super::model::{Model, Op, Seen};

/// The disk failed under an operation, as when the process dies there.
#[derive(Debug)]
pub(super) struct Died;

/// A running broker without threads.
pub(super) struct World {
    root: Arc<dyn Dir>,
    pub(super) engine: Engine,
    flusher: Flusher,
    time: u64,
    dice: u128,
}

/// Small files, so that rolls and recycling happen soon.
const WAL_FILE_BYTES: u64 = 16 * 1024;
const SEGMENT_BYTES: u32 = 4096;
/// Small enough that a checkpoint syncs now each file, now the whole disk.
const SYNC_EACH_MAX: usize = 1;

impl World {
    pub(super) fn open(disk: &SimDisk) -> Result<Self, RecoverError> {
        Self::open_root(disk.root(), 0)
    }

    fn open_root(root: Arc<dyn Dir>, time: u64) -> Result<Self, RecoverError> {
        let fresh = Identity {
            folder: FolderId([7; 16]),
            cluster: [8; 16],
            node: [9; 16],
            feature_level: 1,
        };
        let options = OpenOptions {
            wal: WalConfig {
                file_bytes: WAL_FILE_BYTES,
            },
            open_segments_max: 8,
            fresh,
            unflushed_bytes_max: 2048,
            sync_each_max: SYNC_EACH_MAX,
        };
        let Opened {
            engine,
            flusher,
            report,
            ..
        } = recover::open(&root, &options, MonoMs(time))?;
        let mut world = Self {
            root,
            engine,
            flusher,
            time,
            dice: u128::from(time) << 64,
        };
        let started = Change::BrokerStarted {
            clean: report.clean,
        };
        world
            .commit(started)
            .map_err(|_died| RecoverError::Io(std::io::ErrorKind::Other.into()))?;
        Ok(world)
    }

    /// Does one thing; when it returns, the thing is acknowledged.
    pub(super) fn perform(&mut self, op: &Op, model: &Model) -> Result<(), Died> {
        match op {
            Op::CreateTopic(name, partitions) => self.change(&ChangeRequest::CreateTopic {
                name: topic(name),
                partitions: *partitions,
                settings: TopicSettings {
                    segment_bytes: SEGMENT_BYTES,
                    ..Default::default()
                },
            }),
            Op::AddPartitions(name, total) => self.change(&ChangeRequest::AddPartitions {
                name: topic(name),
                total: *total,
            }),
            Op::DeleteTopic(name) => self.change(&ChangeRequest::DeleteTopic {
                name: topic(name),
                force: true,
            }),
            Op::Append(name, partition, count) => {
                self.append(name, &[(*partition, model.next_values(*count))])
            }
            Op::AppendToTwo(name, first, second) => {
                let mut values = model.next_values(3);
                let others = values.split_off(1);
                self.append(name, &[(*first, values), (*second, others)])
            }
            Op::Named(name, partition, ids) => self.append_named(name, *partition, ids),
            Op::DeleteRecords(name, partition, before) => {
                self.change(&ChangeRequest::DeleteRecords {
                    name: topic(name),
                    partition: *partition,
                    before: Offset::new(*before).unwrap(),
                })
            }
            Op::CreateGroup(name, of) => self.change(&ChangeRequest::CreateGroup {
                name: group(name),
                topics: vec![topic(of)],
                settings: GroupSettings::default(),
                start: StartAt::Earliest,
            }),
            Op::Commit(name, of, partition, offset) => self.change(&ChangeRequest::CommitOffsets {
                group: group(name),
                offsets: vec![CommitRequest {
                    topic: topic(of),
                    partition: *partition,
                    offset: Offset::new(*offset).unwrap(),
                    metadata: String::new(),
                }],
                member: None,
            }),
            Op::Settle(name, of, partition, first, last) => {
                self.settle(name, self.id(of, *partition), (*first, *last))
            }
            Op::ResetOffsets(name, of, partition, offset) => {
                self.change(&ChangeRequest::ResetOffsets {
                    group: group(name),
                    positions: vec![(self.id(of, *partition), Offset::new(*offset).unwrap())],
                    force: true,
                })
            }
            Op::DeleteGroup(name) => self.change(&ChangeRequest::DeleteGroup {
                name: group(name),
                purge_dead_letters: true,
            }),
            Op::Deliver(delivery) => self.deliver(*delivery, model),
            Op::InitProducer => self.change(&ChangeRequest::InitProducer { name: "p".into() }),
            _ => self.maintain(op),
        }
    }

    fn maintain(&mut self, op: &Op) -> Result<(), Died> {
        match op {
            Op::Flush => self.engine.applier.request_flush(true),
            Op::Roll(name, partition) => {
                let id = self.id(name, *partition);
                self.engine.applier.push_task(Task::Roll(id));
            }
            Op::Checkpoint => {
                self.settle_wal()?;
                self.engine.applier.request_checkpoint();
            }
            Op::RemoveFiles => self.remove_files(),
            Op::CleanRestart => return self.restart(true),
            Op::KillRestart => return self.restart(false),
            other => unreachable!("{other:?}"),
        }
        self.run_tasks()
    }

    fn remove_files(&mut self) {
        self.engine.applier.push_task(Task::RemoveRetired(u64::MAX));
        let deleted: Vec<_> = self.engine.applier.state().topics.deleted().collect();
        for (topic, deleted) in deleted {
            self.engine
                .applier
                .push_task(Task::RemoveTopic(topic, deleted.partitions));
        }
    }

    fn restart(&mut self, clean: bool) -> Result<(), Died> {
        if clean {
            self.settle_wal()?;
            self.engine.applier.request_checkpoint();
            self.run_tasks()?;
            let applied = self.engine.applier.applied();
            identity::write_clean_mark(&self.root, applied).map_err(|_error| Died)?;
        }
        let root = Arc::clone(&self.root);
        *self = Self::open_root(root, self.time + 1).map_err(|_error| Died)?;
        Ok(())
    }

    /// Lazy commands may not be synced yet, and a checkpoint holds what they did.
    fn settle_wal(&mut self) -> Result<(), Died> {
        let through = self.engine.sync_job().run().map_err(|_error| Died)?;
        self.engine.note_durable(through);
        Ok(())
    }

    pub(super) fn now(&mut self) -> (WallMs, MonoMs) {
        self.time += 1;
        (WallMs(i64::try_from(self.time).unwrap()), MonoMs(self.time))
    }

    pub(super) fn commit(&mut self, change: Change) -> Result<Outcome, Died> {
        let (wall, mono) = self.now();
        let outcome = self
            .engine
            .commit_now(change, wall, mono)
            .map_err(|_error| Died)?;
        self.run_tasks()?;
        Ok(outcome.expect("scenarios ask for what can be done"))
    }

    fn run_tasks(&mut self) -> Result<(), Died> {
        for task in self.engine.applier.take_tasks() {
            match self.flusher.perform(task).map_err(|_error| Died)? {
                Done::Checkpointed {
                    wal_needed_from, ..
                } => {
                    self.engine
                        .release_wal(wal_needed_from)
                        .map_err(|_error| Died)?;
                }
                Done::TopicRemoved(topic) => {
                    self.commit(Change::ForgetTopic { topic })?;
                }
                Done::Performed | Done::Postponed | Done::TopicKept(_) => {}
            }
        }
        Ok(())
    }

    fn change(&mut self, request: &ChangeRequest) -> Result<(), Died> {
        let mut dice = self.dice;
        let changes = decide::decide(
            self.engine.applier.state(),
            request,
            &|_| decide::Live::default(),
            &mut || {
                dice += 1;
                dice.to_le_bytes()
            },
            &CountLimits::default(),
        );
        self.dice = dice;
        for change in changes.expect("scenarios ask for what can be done") {
            self.commit(change)?;
        }
        Ok(())
    }

    fn append_named(&mut self, name: &str, partition: u32, ids: &[&str]) -> Result<(), Died> {
        let values = ids.iter().map(|id| (*id).to_owned()).collect();
        let hashes = (0..).zip(ids.iter().map(|id| IdHash::of(id)));
        let ids = PartIds {
            fresh: hashes.collect(),
            repeated: Vec::new(),
        };
        self.append_with(name, &[(partition, values)], &ids)
    }

    fn append(&mut self, name: &str, batches: &[(u32, Vec<String>)]) -> Result<(), Died> {
        self.append_with(name, batches, &PartIds::default())
    }

    fn append_with(
        &mut self,
        name: &str,
        batches: &[(u32, Vec<String>)],
        ids: &PartIds,
    ) -> Result<(), Died> {
        let parts = batches.iter().map(|(partition, values)| AppendPart {
            partition: self.id(name, *partition),
            record_count: u32::try_from(values.len()).unwrap(),
            producer: None,
            predicted: None,
            delays: Vec::new(),
            ids: ids.clone(),
            body: batch(values),
        });
        let mut append = Append {
            request: None,
            parts: parts.collect(),
        };
        let stamp = self.engine.applier.stamp();
        let mut forecast = RoundForecast::default();
        self.engine
            .applier
            .state()
            .predict(&mut forecast, &mut append, stamp)
            .unwrap();
        self.commit(Change::Append(append)).map(drop)
    }

    fn settle(&mut self, name: &str, at: PartitionId, range: (u64, u64)) -> Result<(), Died> {
        let durable = self
            .engine
            .applier
            .state()
            .groups
            .get(&group(name))
            .unwrap();
        let resets = durable.progress(at).unwrap().reset_count();
        let mut settle = Settle::of(group(name), durable.id, resets, at);
        settle.ranges = vec![(Offset::new(range.0).unwrap(), Offset::new(range.1).unwrap())];
        self.commit(Change::Settle(settle)).map(drop)
    }

    pub(super) fn id(&self, name: &str, partition: u32) -> PartitionId {
        let topic = self
            .engine
            .applier
            .state()
            .topics
            .by_name(&topic(name))
            .unwrap();
        PartitionId {
            topic: topic.id,
            partition,
        }
    }

    /// Everything that can be read.
    pub(super) fn see(&self) -> Seen {
        let catalog = self.engine.applier.view().catalog();
        let mut topics = BTreeMap::new();
        for view in catalog.by_id.values().filter(|view| view.derived.is_none()) {
            let read = view
                .partitions
                .iter()
                .map(|partition| read(&partition.reader));
            topics.insert(view.name.as_str().to_owned(), read.collect());
        }
        let state = self.engine.applier.state();
        state.check_invariants();
        let mut low = BTreeMap::new();
        for durable in state.groups.iter() {
            for (topic, _) in durable.topics_by_name(&state.topics) {
                for id in topic.partition_ids() {
                    let name = durable.name.as_str().to_owned();
                    let key = (name, topic.name.as_str().to_owned(), id.partition);
                    low.insert(key, durable.progress(id).unwrap().low().get());
                }
            }
        }
        Seen {
            topics,
            low,
            deliveries: self.see_deliveries(),
        }
    }
}

pub(super) fn read(reader: &PartitionReader) -> (u64, Vec<String>) {
    let mut values = Vec::new();
    let mut offset = reader.start();
    while offset < reader.end() {
        let limit = ReadLimit {
            bytes_max: 1 << 20,
            batches_max: 100,
            until: reader.end(),
        };
        let batches = reader
            .read(offset, limit)
            .expect("what is visible can be read");
        for stored in &batches {
            let records = Records::open(&stored.body, 1 << 20).expect("a body is whole");
            for record in &records {
                let record = record.expect("a record is whole");
                let at = stored.base_offset.plus(record.offset_delta.into());
                if at >= offset {
                    let value = record.value.expect("records have values");
                    values.push(String::from_utf8(value.to_vec()).unwrap());
                }
            }
            offset = stored.end();
        }
    }
    (reader.start().get(), values)
}

pub(super) fn batch(values: &[String]) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Codec::None, 1024);
    for value in values {
        let pushed = builder.push(
            None,
            Some(b"key"),
            Some(value.as_bytes()),
            std::iter::empty(),
        );
        pushed.unwrap();
    }
    builder.finish().unwrap()
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

pub(super) fn group(name: &str) -> GroupName {
    GroupName::parse(name).unwrap()
}
