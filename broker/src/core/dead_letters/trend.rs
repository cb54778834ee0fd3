//! How entries came and went, by minutes of the last day and hours of the last month.

use std::collections::VecDeque;

use varvelog_store::WallMs;

use crate::core::fields::holds;

/// A minute.
pub const MINUTE_MS: i64 = 60_000;
/// An hour.
pub const HOUR_MS: i64 = 3_600_000;
/// Minutes that are remembered.
pub const MINUTES_MAX: i64 = 24 * 60;
/// Hours that are remembered.
pub const HOURS_MAX: i64 = 30 * 24;

/// What came and went in a step of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moves {
    /// Deaths.
    pub arrived: u64,
    /// Given out again.
    pub replayed: u64,
    /// Dropped, by hand or with the log start.
    pub discarded: u64,
}

impl Moves {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            arrived: self.arrived.saturating_add(other.arrived),
            replayed: self.replayed.saturating_add(other.replayed),
            discarded: self.discarded.saturating_add(other.discarded),
        }
    }

    /// All that went.
    pub fn departed(self) -> u64 {
        self.replayed.saturating_add(self.discarded)
    }
}

/// One step of a ring in which anything came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which, counted from 1970.
    pub number: i64,
    /// What came and went in it.
    pub moves: Moves,
    /// Entries at its end.
    pub depth: u64,
}

/// Both rings. Steps without moves are left out; the newest command's step is the last.
///
/// Invariants: numbers rise, and none is older than a ring reaches back from its last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trend {
    pub(in crate::core) minutes: VecDeque<Step>,
    pub(in crate::core) hours: VecDeque<Step>,
}

impl Trend {
    /// Minutes with moves, oldest first.
    pub fn minutes(&self) -> &VecDeque<Step> {
        &self.minutes
    }

    /// Hours with moves, oldest first.
    pub fn hours(&self) -> &VecDeque<Step> {
        &self.hours
    }

    /// What came and went since the minute began that lies `minutes` in front of the present one.
    pub fn of_last(&self, minutes: i64, now: WallMs) -> Moves {
        let first = now.0.div_euclid(MINUTE_MS).saturating_sub(minutes);
        let last = self.minutes.iter().rev();
        let last = last.take_while(|step| step.number >= first);
        last.fold(Moves::default(), |sum, step| sum.plus(step.moves))
    }

    /// Counts what came and went at a time, which never falls, after which there are `depth`.
    pub(super) fn add(&mut self, at: WallMs, moves: Moves, depth: u64) {
        let minute = at.0.div_euclid(MINUTE_MS);
        add(&mut self.minutes, (minute, MINUTES_MAX), moves, depth);
        let hour = at.0.div_euclid(HOUR_MS);
        add(&mut self.hours, (hour, HOURS_MAX), moves, depth);
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self, depth: u64) -> Result<(), &'static str> {
        for (steps, kept) in [(&self.minutes, MINUTES_MAX), (&self.hours, HOURS_MAX)] {
            let mut pairs = steps.iter().zip(steps.iter().skip(1));
            holds(
                pairs.all(|(one, next)| one.number < next.number),
                "steps of a trend do not rise",
            )?;
            let ends = steps.front().zip(steps.back());
            let within =
                ends.is_none_or(|(first, last)| last.number.saturating_sub(first.number) < kept);
            holds(within, "a trend reaches too far back")?;
            let last = steps.back().map_or(0, |last| last.depth);
            holds(last == depth, "a trend does not end with what is there")?;
        }
        Ok(())
    }
}

fn add(steps: &mut VecDeque<Step>, (number, kept): (i64, i64), moves: Moves, depth: u64) {
    match steps.back_mut() {
        Some(last) if last.number >= number => {
            last.moves = last.moves.plus(moves);
            last.depth = depth;
        }
        Some(_) | None => steps.push_back(Step {
            number,
            moves,
            depth,
        }),
    }
    while steps
        .front()
        .is_some_and(|first| first.number <= number.saturating_sub(kept))
    {
        steps.pop_front();
    }
}
