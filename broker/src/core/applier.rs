//! What applying commands gives: the durable state with the tails and the readers' picture that
//! follow from it. No threads and no waiting; recovery and the running broker apply through the
//! same code.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::watch;
use varvelog_store::partition::{
    self, CommittedBatch, PartitionConfig, PartitionParts, PartitionReader, TailAppender, Volume,
};
use varvelog_store::{Offset, PartitionId, Sequence, TopicId};

use super::applied::{Applied, Effect};
use super::command::{AppendPart, Command, Stamp};
use super::flusher::{CheckpointTask, Task};
use super::state::State;
use super::topics::Topic;
use crate::view::{Catalog, PartitionView, TopicView, View};

/// State, tails and the readers' picture.
#[derive(Debug)]
pub struct Applier {
    state: State,
    volume: Volume,
    logs: HashMap<PartitionId, Log>,
    view: View,
    /// Tasks for the flusher, in order.
    outbox: Vec<Task>,
    /// Bytes in each tail that no flush task was made for.
    dirty: BTreeMap<PartitionId, u64>,
    applied: Sequence,
    stamp: Stamp,
}

/// A partition as the core holds it.
#[derive(Debug)]
struct Log {
    tail: TailAppender,
    reader: PartitionReader,
    end: watch::Sender<Offset>,
}

/// Bytes of a tail above which a flush is due at once.
const FLUSH_BYTES: u64 = varvelog_store::limits::FLUSH_BYTES as u64;

impl Applier {
    /// An applier that goes on from a state. Partitions are [adopted](Self::adopt) next.
    pub fn new(state: State, volume: Volume) -> Self {
        let (stamp, applied) = (state.broker.stamp(), state.broker.applied());
        Self {
            state,
            volume,
            logs: HashMap::new(),
            view: View::default(),
            outbox: Vec::new(),
            dirty: BTreeMap::new(),
            applied,
            stamp,
        }
    }

    /// Committed state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What readers read through.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The last command applied.
    pub fn applied(&self) -> Sequence {
        self.applied
    }

    /// The stamp of the last command applied.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Tasks for the flusher since the last call, in order.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.outbox)
    }

    /// Bytes that a partition takes on disk and in its tail; 0 if there is none.
    pub fn bytes_of(&self, partition: PartitionId) -> u64 {
        self.logs
            .get(&partition)
            .map_or(0, |log| log.reader.bytes())
    }

    /// Reads a partition; none if it is not there.
    pub fn reader(&self, partition: PartitionId) -> Option<&PartitionReader> {
        Some(&self.logs.get(&partition)?.reader)
    }

    /// Adds a task for the flusher.
    pub fn push_task(&mut self, task: Task) {
        self.outbox.push(task);
    }

    /// Committed bytes that are in memory and in the WAL, not yet in segments.
    pub fn unflushed_bytes(&self) -> u64 {
        self.volume.unflushed_bytes()
    }

    /// Applies one committed command; `moved` gathers the partitions that got records, for
    /// [`Self::publish_ends`].
    pub fn apply(
        &mut self,
        sequence: Sequence,
        command: &Command,
        moved: &mut Vec<PartitionId>,
    ) -> Applied {
        assert_eq!(
            sequence,
            self.applied.next(),
            "commands are applied in order"
        );
        let applied = self.state.apply(sequence, command);
        self.applied = sequence;
        self.stamp = command.stamp;
        let mut catalog_changed = false;
        for effect in &applied.effects {
            catalog_changed |= self.carry_out(effect, command, moved);
        }
        if catalog_changed {
            self.publish_catalog();
        }
        applied
    }

    /// Carries one effect out; true if the catalog has to be made anew.
    fn carry_out(
        &mut self,
        effect: &Effect,
        command: &Command,
        moved: &mut Vec<PartitionId>,
    ) -> bool {
        match effect {
            Effect::Append {
                partition,
                base_offset,
                record_count,
                epoch,
                append_time,
                part,
            } => {
                let Some(body) = parts_of(command).get(*part).map(|part| part.body.clone()) else {
                    unreachable!("an append effect names part {part} of its command");
                };
                *self.dirty.entry(*partition).or_default() += body.len() as u64;
                let log = self.log_mut(*partition);
                log.tail.push(CommittedBatch {
                    base_offset: *base_offset,
                    record_count: *record_count,
                    epoch: *epoch,
                    append_time: *append_time,
                    body,
                });
                moved.push(*partition);
                false
            }
            Effect::PartitionsAdded { topic, from, to } => {
                for partition in *from..*to {
                    self.create_partition(PartitionId {
                        topic: *topic,
                        partition,
                    });
                }
                true
            }
            Effect::TopicRemoved { topic, partitions } => {
                self.close_topic(*topic, *partitions);
                true
            }
            Effect::LogStartMoved { partition, start } => {
                let running_ms = command.stamp.running_ms;
                self.log_mut(*partition).tail.set_start(*start);
                self.outbox
                    .push(Task::MoveStart(*partition, *start, running_ms));
                false
            }
            Effect::TopicUpdated { topic } => {
                self.push_config(*topic);
                true
            }
            Effect::CatalogChanged | Effect::EpochsRaised => true,
            Effect::GroupRemoved { .. } | Effect::GroupReset { .. } => false,
        }
    }

    fn log_mut(&mut self, partition: PartitionId) -> &mut Log {
        match self.logs.get_mut(&partition) {
            Some(log) => log,
            None => unreachable!("partition {partition} is in the state and has no log"),
        }
    }

    fn create_partition(&mut self, id: PartitionId) {
        let config = config_of(&self.state, id.topic);
        let parts = partition::create(&self.volume, id, config, Offset::ZERO);
        self.adopt(id, parts);
    }

    /// Takes a partition's parts: tail and reader here, the writer to the flusher.
    pub fn adopt(&mut self, id: PartitionId, parts: PartitionParts) {
        let PartitionParts {
            writer,
            tail,
            reader,
        } = parts;
        let (end, _) = watch::channel(reader.end());
        self.logs.insert(id, Log { tail, reader, end });
        self.outbox.push(Task::Open(id, Box::new(writer)));
    }

    fn close_topic(&mut self, topic: TopicId, partitions: u32) {
        for partition in 0..partitions {
            let id = PartitionId { topic, partition };
            self.dirty.remove(&id);
            self.logs.remove(&id);
        }
        self.outbox.push(Task::Close(topic, partitions));
    }

    fn push_config(&mut self, topic: TopicId) {
        let config = config_of(&self.state, topic);
        for id in self
            .state
            .topics
            .by_id(topic)
            .into_iter()
            .flat_map(Topic::partition_ids)
        {
            self.outbox.push(Task::Configure(id, config));
        }
    }

    /// Shows readers what was applied. `moved` is sorted and freed of repetitions.
    pub fn publish_ends(&self, moved: &mut Vec<PartitionId>) {
        moved.sort_unstable();
        moved.dedup();
        for id in moved.iter() {
            if let Some(log) = self.logs.get(id) {
                log.end.send_replace(log.reader.end());
            }
        }
    }

    /// Makes the readers' picture anew from the state.
    pub fn publish_catalog(&mut self) {
        let mut catalog = Catalog::default();
        let before = self.view.catalog();
        for topic in self.state.topics.iter() {
            let partitions = topic
                .partition_ids()
                .map(|id| self.partition_view(id))
                .collect();
            let view = Arc::new(TopicView {
                id: topic.id,
                name: topic.name.clone(),
                settings: topic.settings.clone(),
                created: topic.created,
                derived: topic.derived.as_ref().map(|derived| derived.group.clone()),
                partitions,
                traffic: before
                    .by_id
                    .get(&topic.id)
                    .map(|before| Arc::clone(&before.traffic))
                    .unwrap_or_default(),
            });
            catalog.by_id.insert(topic.id, Arc::clone(&view));
            catalog.by_name.insert(topic.name.clone(), view);
        }
        self.view.publish(catalog);
    }

    fn partition_view(&self, id: PartitionId) -> PartitionView {
        let Some(log) = self.logs.get(&id) else {
            unreachable!("partition {id} is in the state and has no log");
        };
        let Some(partition) = self.state.topics.partition(id) else {
            unreachable!("partition {id} is in the state");
        };
        PartitionView {
            id,
            reader: log.reader.clone(),
            end: log.end.subscribe(),
            epoch: partition.epoch(),
            epochs: partition.epochs().into(),
        }
    }

    /// Makes flush tasks: for every tail with enough bytes, or for all of them.
    pub fn request_flush(&mut self, all: bool) {
        let due: Vec<PartitionId> = self
            .dirty
            .iter()
            .filter(|(_, bytes)| all || **bytes >= FLUSH_BYTES)
            .map(|(id, _)| *id)
            .collect();
        for id in &due {
            self.dirty.remove(id);
        }
        if !due.is_empty() {
            self.outbox.push(Task::Flush(due));
        }
    }

    /// Asks for a flush of all tails, also of those that were asked for before.
    pub fn request_flush_again(&mut self) {
        let all: Vec<PartitionId> = std::mem::take(&mut self.dirty).into_keys().collect();
        self.outbox.push(Task::Flush(all));
    }

    /// Asks to remove files that a retention left behind when the process ended in between.
    pub fn request_sweep(&mut self) {
        let mut all: Vec<PartitionId> = self.logs.keys().copied().collect();
        all.sort_unstable();
        self.outbox.extend(all.into_iter().map(Task::Sweep));
    }

    /// Whether some tail has bytes that no flush task was made for.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Makes the task of a checkpoint of exactly what is applied now.
    pub fn request_checkpoint(&mut self) {
        self.dirty.clear();
        let mut ends: Vec<(PartitionId, Offset)> = self
            .logs
            .iter()
            .map(|(id, log)| (*id, log.reader.end()))
            .collect();
        ends.sort_unstable();
        self.outbox.push(Task::Checkpoint(CheckpointTask {
            sequence: self.applied,
            ends,
            state: self.state.snapshot(),
        }));
    }
}

/// How a topic's segments are made.
pub fn config_of(state: &State, topic: TopicId) -> PartitionConfig {
    let segment_bytes = state
        .topics
        .by_id(topic)
        .map_or(varvelog_store::limits::SEGMENT_BYTES_DEFAULT, |topic| {
            topic.settings.segment_bytes
        });
    PartitionConfig {
        segment_bytes,
        index_interval_bytes: varvelog_store::limits::INDEX_INTERVAL_BYTES,
    }
}

fn parts_of(command: &Command) -> &[AppendPart] {
    let append = command.change.append();
    append.map_or(&[], |append| &append.parts)
}
