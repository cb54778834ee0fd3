//! Keys that are parked: their records follow one that is dead into the dead-letter topic.

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::fates::{Court, How, Unprocessed};
use super::feed::Feed;
use super::group::Group;
use super::key_window::KeyWindow;
use super::spent::is_over;
use super::turn::Turn;
use crate::core::settings::{GroupMode, GroupSettings, OnFailure};

/// Records that follow in one command.
const PARKED_PER_COMMAND: usize = 1_000;

/// Whether keys decide what is given out of a source partition.
pub(super) fn goes_by_key(settings: &GroupSettings) -> bool {
    let holds = settings.on_failure == OnFailure::Hold;
    (holds && settings.mode == GroupMode::Queue) || settings.parks()
}

impl Group {
    /// Which keys of a source partition are parked has changed in durable state.
    pub(super) fn parked_changed<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        source: PartitionId,
    ) {
        self.follow_parked(turn, source);
        self.sweep_parked(turn, source);
        self.wake(source);
    }

    /// The settings may have it otherwise now whether keys are looked at.
    pub(super) fn follow_parked<S: Durable>(&mut self, turn: &Turn<'_, S>, source: PartitionId) {
        let (Some(facts), Some(position)) = (
            turn.state.group(&self.name),
            turn.state.position(&self.name, source),
        ) else {
            return;
        };
        let Some(feed) = self.feeds.get_mut(&source) else {
            return;
        };
        if !goes_by_key(facts.settings) {
            (feed.keys, feed.looking) = (None, None);
            return;
        }
        let window = feed.keys.take();
        let mut window = window.unwrap_or_else(|| KeyWindow::starting_at(position.low));
        let parked = turn.state.parked(&self.name, source);
        let is_parked = |key| parked.is_some_and(|parked| parked.contains_key(&key));
        window.park_only(is_parked, |at| is_taken(feed, at));
        for key in parked.into_iter().flat_map(|parked| parked.keys()) {
            window.park(*key);
        }
        feed.keys = Some(window);
    }

    /// Dead-letters what was looked at of parked keys, in order, as far as there is room.
    pub(super) fn sweep_parked<S: Durable>(&mut self, turn: &mut Turn<'_, S>, source: PartitionId) {
        let Some(facts) = turn.state.group(&self.name) else {
            return;
        };
        let court = Court {
            group: &self.name,
            settings: facts.settings,
            partition: source,
            is_retry: false,
        };
        let feed = self.feeds.get(&source);
        let Some((feed, window)) = feed.and_then(|feed| Some((feed, feed.keys.as_ref()?))) else {
            return;
        };
        if !facts.settings.parks() || feed.is_parking || court.is_full(turn) {
            return;
        }
        let is_open = |at: &Offset| {
            let note = turn.state.next_note(&self.name, source, *at);
            let is_over = note.is_some_and(|(noted, note)| noted == *at && is_over(note.wait));
            let leased = feed.leases.overlapping(*at, *at).next().is_some();
            !is_over && !leased && !feed.is_settling((*at, *at))
        };
        let parked = window.parked_from(Offset::ZERO).filter(is_open);
        let records = parked.take(PARKED_PER_COMMAND).map(|offset| Unprocessed {
            offset,
            origin: offset,
            how: How::Parked,
            releases: 0,
            consumer: String::new(),
        });
        let records = records.collect();
        self.decide_unasked(turn, source, records);
    }
}

/// Whether somebody has a record, or it waits.
fn is_taken(feed: &Feed, at: Offset) -> bool {
    feed.leases.overlapping(at, at).next().is_some() || feed.waiting.contains(at)
}
