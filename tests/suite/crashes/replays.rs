//! Replays and discards of dead letters, as commands of a world that may crash.

use varvelog_broker::core::command::{Append, Change};
use varvelog_broker::core::dead_letters::{Claims, JobNumber, ReplayOrder};
use varvelog_broker::core::forecast::RoundForecast;
use varvelog_broker::core::replay_command::{Discard, ReplayStep, StartReplay};
use varvelog_broker::core::retries::RetryEntry;

use super::deliveries::{LATER, new_part, offset};
use super::model::Model;
use super::world::{Died, World};

impl World {
    pub(super) fn start_replay(&mut self, model: &Model) -> Result<(), Died> {
        let mut claims = Claims::new();
        let dead = model.deliveries.dead.keys();
        dead.for_each(|at| claims.add(0, offset(*at), false));
        let start = StartReplay {
            queue: self.derived(1).topic,
            selected: u64::try_from(claims.run_count()).unwrap(),
            claims,
            skipped: 0,
            order: ReplayOrder {
                millis_per_second: 50_000,
                ..ReplayOrder::default()
            },
        };
        self.commit(Change::StartReplay(start)).map(drop)
    }

    pub(super) fn replay_one(&mut self, number: u64, model: &Model) -> Result<(), Died> {
        let at = model.deliveries.next_of(number);
        let value = model.deliveries.dead[&at].clone();
        let entry = RetryEntry {
            due: LATER,
            origin: offset(at),
            failures: 0,
            suspect: false,
        };
        let mut step = ReplayStep {
            job: JobNumber(number),
            partition: self.derived(1),
            done: vec![offset(at)],
            failed: Vec::new(),
            error: String::new(),
            append: Append {
                request: None,
                parts: vec![new_part(self.derived(0), &[value])],
            },
            retries: vec![(0, vec![entry])],
        };
        let (mut round, stamp) = (RoundForecast::default(), self.engine.applier.stamp());
        let state = self.engine.applier.state();
        state.predict_replay(&mut round, &mut step, stamp).unwrap();
        self.commit(Change::Replay(step)).map(drop)
    }

    pub(super) fn discard(&mut self, claims: Claims) -> Result<(), Died> {
        let discard = Discard {
            queue: self.derived(1).topic,
            claims,
            selected: 1,
            note: String::new(),
            detail: "one".to_owned(),
        };
        self.commit(Change::Discard(discard)).map(drop)
    }
}
