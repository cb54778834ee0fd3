//! The durable state: what applying every committed command gives.
//!
//! Apply is a deterministic function of state and command: no clock, no dice, no order of a hash
//! map, no configuration. It is total: a command that fails its checks changes nothing and has a
//! refusal as its outcome. Every change is checked by the same function that [`State::check`]
//! calls.

use varvelog_store::{Epoch, PartitionId, Sequence, WallMs};

use super::applied::{Applied, Effect, Outcome};
use super::command::{Change, Command, Stamp};
use super::dead_letters::DeadLetters;
use super::durable_groups::Groups;
use super::fields::holds;
use super::message_ids::MessageIds;
use super::partitions::Partition;
use super::producers::{Batches, Producers};
use super::refusal::Refusal;
use super::request_ids::RequestIds;
use super::topics::Topics;

/// Durable state.
#[derive(Debug, Default)]
pub struct State {
    /// Topics and partitions.
    pub topics: Topics,
    /// Idempotent producers.
    pub producers: Producers,
    /// Requests that may be sent again.
    pub requests: RequestIds,
    /// Message ids within their windows.
    pub message_ids: MessageIds,
    /// Groups.
    pub groups: Groups,
    /// What is in dead-letter topics.
    pub dead_letters: DeadLetters,
    /// The broker's own record.
    pub broker: BrokerRecord,
}

/// What the broker keeps about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrokerRecord {
    /// The last command that was applied.
    pub(super) applied: Sequence,
    /// The highest stamp of any command.
    pub(super) stamp: Stamp,
    /// Producer ids given out so far; the next id.
    pub(super) producer_ids: i64,
    /// Groups made so far; the next one's id is one more.
    pub(super) group_ids: u64,
    /// Brokers that began to work on this folder.
    pub(super) starts: u64,
}

impl BrokerRecord {
    /// The last command that was applied; [`Sequence::ZERO`] before the first.
    pub fn applied(&self) -> Sequence {
        self.applied
    }

    /// The highest stamp of any command: later stamps are not below it.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// How many brokers began to work on this folder; the present one is the last of them.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// The stamp, brought up to the highest so far in both its times.
    pub(super) fn not_before(&self, stamp: Stamp) -> Stamp {
        Stamp {
            wall: stamp.wall.max(self.stamp.wall),
            running_ms: stamp.running_ms.max(self.stamp.running_ms),
        }
    }
}

/// What a change gives when it is carried out.
pub(super) type Carried = (Outcome, Vec<Effect>);

impl State {
    /// The state before the first command.
    pub fn new() -> Self {
        Self::default()
    }

    /// The present epoch and append time of a partition.
    pub fn epoch_and_time(&self, id: PartitionId) -> Option<(Epoch, WallMs)> {
        self.topics
            .partition(id)
            .map(|partition| (partition.epoch(), partition.append_time()))
    }

    /// Whether apply would carry the change out, or why not.
    pub fn check(&self, change: &Change, stamp: Stamp) -> Result<(), Refusal> {
        match change {
            Change::Append(append) => self.check_append(append, self.broker.not_before(stamp)),
            Change::CreateTopic(create) => self.check_create_topic(create),
            Change::UpdateTopic { topic, settings: _ } => self.topics.find_own(*topic).map(drop),
            Change::AddPartitions { topic, total } => self.check_add_partitions(*topic, *total),
            Change::DeleteTopic { topic, force } => self.check_delete_topic(*topic, *force),
            Change::ForgetTopic { topic } => self.check_forget_topic(*topic),
            Change::MoveLogStart { partition, start } => {
                self.check_move_log_start(*partition, *start)
            }
            Change::InitProducer { name } => self.producers.check_init(name),
            Change::CreateGroup(create) => self.check_create_group(create),
            Change::AddGroupTopics { group, topics } => self.check_add_topics(group, topics),
            Change::UpdateGroup { group, settings: _ }
            | Change::DeleteGroup {
                group,
                purge_dead_letters: _,
            }
            | Change::NextGeneration { group } => self.groups.find(group).map(drop),
            Change::CommitOffsets(commit) => self.check_commit(commit),
            Change::Settle(settle) => self.check_settle(settle, self.broker.not_before(stamp)),
            Change::HandOut(hand_out) => self.check_hand_out(hand_out),
            Change::HandBack(back) => self.check_hand_back(back),
            Change::MakeDue(due) => self.groups.find(&due.group).map(drop),
            Change::StartReplay(start) => {
                self.check_start_replay(start, self.broker.not_before(stamp))
            }
            Change::Replay(step) => self.check_replay(step, self.broker.not_before(stamp)),
            Change::ControlReplay { job, control } => self.check_control_replay(*job, *control),
            Change::Discard(discard) => self.check_discard(discard),
            Change::ResetOffsets { group, positions } => self.check_reset(group, positions),
            Change::ExpireProducers { used_since: _ } | Change::BrokerStarted { clean: _ } => {
                Ok(())
            }
        }
    }

    /// Applies a committed command. Asserts the predictions of an append.
    pub fn apply(&mut self, sequence: Sequence, command: &Command) -> Applied {
        let stamp = self.broker.not_before(command.stamp);
        let result = if let Change::Append(append) = &command.change {
            self.apply_append(append, stamp)
        } else if let Change::Settle(settle) = &command.change {
            self.apply_settle(settle, stamp)
        } else if let Change::Replay(step) = &command.change {
            self.apply_replay(step, stamp)
        } else {
            let checked = self.check(&command.change, stamp);
            checked.map(|()| self.carry_out(&command.change, stamp))
        };
        self.broker.stamp = stamp;
        self.broker.applied = sequence;
        Applied::from_result(result)
    }

    /// Carries out a change that passed its checks.
    fn carry_out(&mut self, change: &Change, stamp: Stamp) -> Carried {
        match change {
            Change::Append(_) | Change::Settle(_) | Change::Replay(_) => {
                unreachable!("what appends is applied on its own way")
            }
            Change::CreateTopic(create) => self.create_topic(create, stamp),
            Change::UpdateTopic { topic, settings } => self.update_topic(*topic, settings),
            Change::AddPartitions { topic, total } => self.add_partitions(*topic, *total),
            Change::DeleteTopic { topic, force: _ } => self.delete_topic(*topic, stamp),
            Change::ForgetTopic { topic } => {
                self.topics.deleted.remove(topic);
                (Outcome::Done, Vec::new())
            }
            Change::MoveLogStart { partition, start } => {
                self.move_log_start((*partition, *start), stamp)
            }
            Change::InitProducer { name } => self.init_producer(name, stamp),
            Change::ExpireProducers { used_since } => self.expire(*used_since, stamp),
            Change::CreateGroup(create) => self.create_group(create, stamp),
            Change::AddGroupTopics { group, topics } => self.add_group_topics(group, topics, stamp),
            Change::UpdateGroup { group, settings } => self.update_group(group, settings),
            Change::DeleteGroup {
                group,
                purge_dead_letters,
            } => self.delete_group(group, *purge_dead_letters, stamp),
            Change::NextGeneration { group } => self.next_generation(group, stamp),
            Change::CommitOffsets(commit) => self.commit_offsets(commit, stamp),
            Change::HandOut(hand_out) => self.hand_out(hand_out, stamp),
            Change::HandBack(back) => self.hand_back(back),
            Change::MakeDue(due) => self.make_due(due, stamp),
            Change::StartReplay(start) => self.start_replay(start, stamp),
            Change::ControlReplay { job, control } => self.control_replay(*job, *control, stamp),
            Change::Discard(discard) => self.discard(discard, stamp),
            Change::ResetOffsets { group, positions } => {
                self.reset_offsets(group, positions, stamp)
            }
            Change::BrokerStarted { clean } => self.broker_started(*clean),
        }
    }

    fn init_producer(&mut self, name: &str, stamp: Stamp) -> Carried {
        let fresh = self.broker.producer_ids;
        let (id, epoch) = self.producers.init(name, fresh, stamp.wall);
        if id == fresh {
            self.broker.producer_ids += 1;
        }
        (Outcome::Producer { id, epoch }, Vec::new())
    }

    /// Whether a command to expire producers would forget one.
    pub(super) fn has_expired_producers(&self, used_since: WallMs) -> bool {
        let start_of = |at| Some(self.topics.partition(at)?.start());
        self.producers.has_expired(used_since, start_of)
    }

    /// Whether a command to expire producers would forget a message id.
    pub(super) fn has_past_message_ids(&self, now: WallMs) -> bool {
        let window_ms = |topic| self.topics.id_window_ms(topic);
        self.message_ids.has_past(now, window_ms)
    }

    /// Also forgets request ids and message ids past their time, which nothing else would of a
    /// topic that gets no more of them.
    fn expire(&mut self, used_since: WallMs, stamp: Stamp) -> Carried {
        let topics = &self.topics;
        self.producers
            .expire(used_since, |at| Some(topics.partition(at)?.start()));
        self.requests.expire(stamp.running_ms);
        self.message_ids
            .expire(stamp.wall, |topic| topics.id_window_ms(topic));
        (Outcome::Done, Vec::new())
    }

    fn broker_started(&mut self, clean: bool) -> Carried {
        self.broker.starts += 1;
        if clean {
            return (Outcome::Done, Vec::new());
        }
        self.topics
            .partitions_mut()
            .for_each(Partition::raise_epoch);
        (
            Outcome::Done,
            vec![Effect::EpochsRaised, Effect::CatalogChanged],
        )
    }

    /// Asserts what must always hold. Walks everything: for tests and debugging.
    pub fn check_invariants(&self) {
        assert_eq!(self.verify(), Ok(()));
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        self.topics.verify()?;
        self.producers.verify()?;
        self.requests.verify()?;
        self.message_ids.verify()?;
        self.groups.verify(&self.topics)?;
        self.dead_letters.verify(&self.topics)?;
        let last = self.producers.by_id.last_key_value();
        let given = last.is_none_or(|(id, _)| *id < self.broker.producer_ids);
        holds(
            given && self.broker.producer_ids >= 0,
            "a producer id was never given out",
        )?;
        let last = self.groups.iter().map(|group| group.id).max().unwrap_or(0);
        holds(
            last <= self.broker.group_ids,
            "a group id was never given out",
        )?;
        for (at, histories) in &self.producers.histories {
            let partition = self
                .topics
                .partition(*at)
                .ok_or("a history has no partition")?;
            let mut marks = histories.values().flat_map(Batches::marks);
            let within = marks.all(|mark| mark.base_offset < partition.next());
            holds(within, "a history goes beyond the end of its log")?;
        }
        let mut owners = self.requests.topics();
        let owned = owners.all(|topic| self.topics.by_id(topic).is_some());
        holds(owned, "a request id has no topic")?;
        let mut owners = self.message_ids.topics();
        let owned = owners.all(|topic| self.topics.by_id(topic).is_some());
        holds(owned, "a message id has no topic")
    }
}
