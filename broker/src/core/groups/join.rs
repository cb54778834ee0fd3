//! A join on its way: the group and its topics are made first where they are missing.

use std::collections::BTreeSet;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::action::{CallId, ProposalId};
use super::durable::{Durable, TopicFacts};
use super::turn::{Proposal, Shared, Turn};
use crate::core::command::{Change, CreateGroup, GroupTopic};
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::request::{JoinRequest, StartAt};
use crate::core::settings::GroupSettings;

/// How often a join proposes something anew because others were faster.
const TRIES_MAX: u32 = 16;

/// A join that is not answered yet.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) call: CallId,
    pub(super) request: JoinRequest,
    /// For a new member.
    pub(super) fresh_id: String,
    /// Ids of derived topics, two for each topic that is named.
    fresh_topics: Vec<(TopicId, TopicId)>,
    tries: u32,
}

/// What a join needs next.
pub(super) enum Step {
    /// Nothing: it can be let in, with those topics; none for whatever the group reads.
    Admit(Option<BTreeSet<TopicId>>),
    /// This change first.
    Propose(Box<Change>),
}

impl Joining {
    pub(super) fn new(
        call: CallId,
        mut request: JoinRequest,
        dice: &mut dyn FnMut() -> [u8; 16],
    ) -> Self {
        request.topics.sort_unstable();
        request.topics.dedup();
        let fresh_id = uuid::Uuid::from_bytes(dice()).simple().to_string();
        let fresh_topics = request
            .topics
            .iter()
            .map(|_| (TopicId(dice()), TopicId(dice())))
            .collect();
        Self {
            call,
            request,
            fresh_id,
            fresh_topics,
            tries: 0,
        }
    }

    /// What is missing before the member can be let in.
    pub(super) fn next_step<S: Durable>(&self, state: &S) -> Result<Step, Refusal> {
        let name = &self.request.group;
        let wanted: Vec<_> = self
            .request
            .topics
            .iter()
            .map(|topic| state.topic(topic))
            .collect::<Result<_, _>>()?;
        let Some(_) = state.group(name) else {
            if wanted.is_empty() {
                return Err(GroupRefusal::TopicsMissing {
                    group: name.to_string(),
                }
                .into());
            }
            let create = CreateGroup {
                group: name.clone(),
                settings: GroupSettings::default(),
                topics: self.group_topics(&wanted, |_| true),
            };
            return Ok(Step::Propose(Box::new(Change::CreateGroup(create))));
        };
        let had: BTreeSet<_> = state
            .group_topics(name)
            .into_iter()
            .map(|it| it.id)
            .collect();
        let topics = self.group_topics(&wanted, |topic| !had.contains(&topic.id));
        if !topics.is_empty() {
            let group = name.clone();
            let add = Change::AddGroupTopics { group, topics };
            return Ok(Step::Propose(Box::new(add)));
        }
        let wanted: BTreeSet<_> = wanted.into_iter().map(|topic| topic.id).collect();
        Ok(Step::Admit((!wanted.is_empty()).then_some(wanted)))
    }

    /// Whether a refused proposal is worth another look: others may have been faster.
    pub(super) fn may_try_again(&self) -> bool {
        self.tries < TRIES_MAX
    }

    fn group_topics(
        &self,
        wanted: &[TopicFacts],
        filter: impl Fn(&TopicFacts) -> bool,
    ) -> Vec<GroupTopic> {
        let fresh = self.fresh_topics.iter();
        let chosen = wanted.iter().zip(fresh).filter(|(topic, _)| filter(topic));
        let made = chosen.map(|(topic, (retry, dead_letter))| GroupTopic {
            topic: topic.id,
            start: self.starts(topic),
            retry: *retry,
            dead_letter: *dead_letter,
        });
        made.collect()
    }

    /// Partitions that are not listed begin at their log start, which 0 is brought up to.
    fn starts(&self, topic: &TopicFacts) -> Vec<Offset> {
        let StartAt::Offsets(offsets) = &self.request.start else {
            return Vec::new();
        };
        let id = |partition| PartitionId {
            topic: topic.id,
            partition,
        };
        (0..topic.partitions)
            .map(|partition| offsets.get(&id(partition)).copied().unwrap_or(Offset::ZERO))
            .collect()
    }
}

impl Shared {
    /// A join of the group waits for a proposal.
    pub(super) fn count_joining(&mut self, joining: &Joining) {
        *self
            .joining
            .entry(joining.request.group.clone())
            .or_default() += 1;
    }

    /// It waits no longer.
    pub(super) fn uncount_joining(&mut self, joining: &Joining) {
        if let Some(count) = self.joining.get_mut(&joining.request.group) {
            *count -= 1;
            if *count == 0 {
                self.joining.remove(&joining.request.group);
            }
        }
    }
}

impl<S: Durable> Turn<'_, S> {
    /// Proposes what a join waits for.
    pub(super) fn propose_for(&mut self, mut joining: Joining, change: Change) -> ProposalId {
        joining.tries += 1;
        self.shared.count_joining(&joining);
        self.propose(Proposal::Join(Box::new(joining)), change)
    }
}
