//! The group machine beside real logs: committed state, and what only the logs know.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, WallMs};

use super::durable::{Durable, GroupFacts, Place, Position, TopicFacts};
use crate::core::applier::Applier;
use crate::core::command::RequestId;
use crate::core::failure::{Ending, FailureNote};
use crate::core::handed_out::HandOuts;
use crate::core::refusal::Refusal;
use crate::core::request::Appended;
use crate::core::retries::RetryEntry;
use crate::names::{GroupName, TopicName};

impl Durable for Applier {
    fn group(&self, group: &GroupName) -> Option<GroupFacts<'_>> {
        self.state().group(group)
    }

    fn group_names(&self) -> Vec<GroupName> {
        self.state().group_names()
    }

    fn group_topics(&self, group: &GroupName) -> Vec<TopicFacts> {
        self.state().group_topics(group)
    }

    fn topic(&self, name: &TopicName) -> Result<TopicFacts, Refusal> {
        self.state().topic(name)
    }

    fn place(&self, group: &GroupName, partition: PartitionId) -> Option<Place> {
        self.state().place(group, partition)
    }

    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position> {
        self.state().position(group, partition)
    }

    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)> {
        self.state().next_done(group, partition, from)
    }

    fn next_note(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, &FailureNote)> {
        self.state().next_note(group, partition, from)
    }

    fn next_retry(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, RetryEntry)> {
        self.state().next_retry(group, partition, from)
    }

    fn ending(&self, group: &GroupName, partition: PartitionId, offset: Offset) -> Option<Ending> {
        self.state().ending(group, partition, offset)
    }

    fn handed_out(&self, group: &GroupName, partition: PartitionId) -> Option<&HandOuts> {
        self.state().handed_out(group, partition)
    }

    fn parked(&self, group: &GroupName, partition: PartitionId) -> Option<&BTreeMap<u64, Offset>> {
        self.state().parked(group, partition)
    }

    fn next_delayed(&self, partition: PartitionId, from: Offset) -> Option<(Offset, WallMs)> {
        self.state().next_delayed(partition, from)
    }

    fn carried_out(&self, request: &RequestId) -> Option<(u64, Appended)> {
        self.state().carried_out(request)
    }

    fn log_bytes(&self, partition: PartitionId) -> u64 {
        self.bytes_of(partition)
    }

    fn dead_letters_of(&self, partition: PartitionId) -> Option<(GroupName, PartitionId)> {
        self.state().dead_letters_of(partition)
    }
}
