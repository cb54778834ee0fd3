//! A broker's part in replays, with a plain list of dead letters beside it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use varvelog_store::Offset;

use super::replay_model::Op;
use super::replays::{DEAD, RETRY, start_of};
use super::sample::*;
use crate::clock::MonoMs;
use crate::core::applied::Outcome;
use crate::core::command::{Append, Change, Settle};
use crate::core::copies::{ReadDone, ReadJob, ReadResult, ReadTrouble, ReplayJob, Replayed};
use crate::core::dead_letters::{Claims, JobNumber};
use crate::core::failure::Ending;
use crate::core::groups::{Action, Actions, ProposalId};
use crate::core::refusal::Refusal;
use crate::core::replay_command::{Discard, JobControl};
use crate::core::replays::{Moment, Replays};
use crate::core::retries::RetryEntry;

pub(super) const PARTITIONS: u32 = 2;

/// What a plain reader of the rules knows of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Letter {
    origin: u64,
    replays: u32,
    pub(super) job: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) matched: u64,
    pub(super) replayed: u64,
    pub(super) failed: u64,
    pub(super) failed_again: u64,
    pub(super) skipped: u64,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) bench: Bench,
    runner: Replays,
    pub(super) mono: u64,
    /// Producers are refused for the group's sake.
    pub(super) is_over: bool,
    reads: VecDeque<ReplayJob>,
    proposals: VecDeque<(ProposalId, Change)>,
    pub(super) letters: BTreeMap<(u32, u64), Letter>,
    /// Replayed and not settled: by partition and offset in the retry topic.
    out: BTreeMap<(u32, u64), (Letter, u64)>,
    pub(super) jobs: BTreeMap<u64, Counts>,
    produced: [u64; PARTITIONS as usize],
    ends: [u64; PARTITIONS as usize],
    retry_ends: [u64; PARTITIONS as usize],
    moved: BTreeSet<(u32, u64, u32)>,
}

impl World {
    pub(super) fn new() -> Self {
        let mut bench = Bench::with_group();
        bench.must(append(vec![part(at(1, 0), 90), part(at(1, 1), 90)]));
        Self {
            bench,
            ..Self::default()
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            mono: MonoMs(self.mono),
            wall: self.bench.wall(),
        }
    }

    fn bury(&mut self, partition: u32, letters: Vec<Letter>) {
        for letter in letters {
            let end = &mut self.ends[partition as usize];
            self.letters.insert((partition, *end), letter);
            *end += 1;
        }
    }

    pub(super) fn die(&mut self, partition: u32, count: u32) {
        let first = self.produced[partition as usize];
        if first + u64::from(count) > 100 {
            return;
        }
        self.produced[partition as usize] += u64::from(count);
        let last = first + u64::from(count) - 1;
        let endings = (first..=last).map(|at| (offset(at), Ending::DeadLettered));
        let settle = Settle {
            ranges: vec![(offset(first), offset(last))],
            endings: endings.collect(),
            append: Append {
                request: None,
                parts: vec![part(at(DEAD, partition), count)],
            },
            deaths: vec![(0, deaths(count))],
            ..settle_of(&self.bench, "email", at(1, partition))
        };
        self.bench.must(Change::Settle(settle));
        let letter = |origin| Letter {
            origin,
            replays: 0,
            job: None,
        };
        self.bury(partition, (first..=last).map(letter).collect());
    }

    fn start(&mut self, (partition, from, more): (u32, u64, u64), canary: u32, keeps: bool) {
        if self.bench.state.dead_letters.get(topic_id(DEAD)).is_none() {
            return;
        }
        let runs = [(partition, from, from + more)];
        let start = start_of(&self.bench, &runs, |order| {
            order.canary = canary;
            order.keep_on_refail = keeps;
        });
        self.bench.must(start);
        let number = u64::try_from(self.jobs.len()).unwrap() + 1;
        let mut counts = Counts::default();
        for (_, letter) in self
            .letters
            .range_mut((partition, from)..=(partition, from + more))
        {
            if letter.job.is_none() {
                letter.job = Some(number);
                counts.matched += 1;
            } else {
                counts.skipped += 1;
            }
        }
        self.jobs.insert(number, counts);
        self.release_ended();
    }

    fn control(&mut self, number: u64, control: JobControl) {
        let job = JobNumber(number);
        self.bench.run(Change::ControlReplay { job, control });
        self.release_ended();
    }

    /// What jobs that are over have is nobody's.
    fn release_ended(&mut self) {
        let jobs = self.bench.state.dead_letters.jobs();
        for letter in self.letters.values_mut() {
            let job = letter.job.and_then(|number| jobs.get(JobNumber(number)));
            if job.is_some_and(|job| !job.state.is_active()) {
                letter.job = None;
            }
        }
    }

    fn discard(&mut self, partition: u32, from: u64, more: u64) {
        let Some(queue) = self.bench.state.dead_letters.get(topic_id(DEAD)) else {
            return;
        };
        let mut claims = Claims::new();
        let run = (offset(from), offset(from + more));
        for (at, _) in queue.within(partition, run) {
            claims.add(partition, at, false);
        }
        let within = (partition, from)..=(partition, from + more);
        let selected = self.letters.range(within.clone()).count();
        let free = self
            .letters
            .range(within)
            .filter(|(_, it)| it.job.is_none());
        let free: Vec<_> = free.map(|(place, _)| *place).collect();
        self.letters.retain(|place, _| !free.contains(place));
        let discard = Discard {
            queue: topic_id(DEAD),
            claims,
            selected: u64::try_from(selected).unwrap(),
            note: String::new(),
            detail: String::new(),
        };
        let outcome = self.bench.must(Change::Discard(discard));
        let expected = Outcome::Discarded {
            discarded: u64::try_from(free.len()).unwrap(),
            skipped: u64::try_from(selected - free.len()).unwrap(),
        };
        assert_eq!(outcome, expected);
    }

    fn retain(&mut self, partition: u32, more: u64) {
        let log = self
            .bench
            .state
            .topics
            .partition(at(DEAD, partition))
            .unwrap();
        let start = (log.start().get() + more).min(self.ends[partition as usize]);
        self.bench.must(move_log_start(at(DEAD, partition), start));
        let below = self.letters.range((partition, 0)..(partition, start));
        let below: Vec<_> = below.map(|(place, letter)| (*place, letter.job)).collect();
        for (place, job) in below {
            self.letters.remove(&place);
            if let Some(job) = job {
                self.jobs.get_mut(&job).unwrap().skipped += 1;
            }
        }
        self.release_ended();
    }

    fn settle(&mut self, partition: u32, dies: bool) {
        let first = self.out.range((partition, 0)..(partition + 1, 0)).next();
        let Some((place, (letter, job))) = first.map(|(place, it)| (*place, *it)) else {
            return;
        };
        self.out.remove(&place);
        let mut settle = Settle {
            ranges: vec![(offset(place.1), offset(place.1))],
            ..settle_of(&self.bench, "email", at(RETRY, partition))
        };
        if dies {
            let mut death = deaths(1);
            death[0].replays = letter.replays + 1;
            death[0].replayed_by = Some(JobNumber(job));
            settle.endings = vec![(offset(place.1), Ending::DeadLettered)];
            settle.append.parts = vec![part(at(DEAD, partition), 1)];
            settle.deaths = vec![(0, death)];
            self.jobs.get_mut(&job).unwrap().failed_again += 1;
        }
        self.bench.must(Change::Settle(settle));
        if dies {
            let again = Letter {
                replays: letter.replays + 1,
                job: None,
                ..letter
            };
            self.bury(partition, vec![again]);
        }
        self.release_ended();
    }

    fn tick(&mut self, ms: u64) {
        self.mono += ms;
        self.bench.pass(ms);
        let now = self.moment();
        let is_over = self.is_over;
        let actions = self.runner.tick(&self.bench.state, &|_, _| is_over, now);
        assert!(actions.is_empty() || !is_over, "a job holds");
        self.take(actions);
    }

    /// When the runner is to be asked again.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        Some(self.runner.next_deadline(&self.bench.state)?.0)
    }

    fn take(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Read(ReadJob::Replay(job)) => self.reads.push_back(job),
                Action::Propose(id, change) => self.proposals.push_back((id, change)),
                Action::Read(_)
                | Action::Note(_)
                | Action::Reply(..)
                | Action::Send(..)
                | Action::Close(_) => panic!("not of a runner"),
            }
        }
    }

    /// What the copier makes of an order, whose first `failed` it cannot copy.
    fn copied(&self, job: &ReplayJob, failed: usize) -> Replayed {
        let failed = failed.min(job.offsets.len());
        let (without, with) = job.offsets.split_at(failed);
        let partition = job.from.partition;
        let origin = |at: &Offset| self.letters.get(&(partition, at.get())).map(|it| it.origin);
        let entry = |at: &Offset| RetryEntry {
            due: job.due,
            origin: offset(origin(at).unwrap_or(999)),
            failures: 0,
            suspect: false,
        };
        let mut replayed = Replayed {
            done: with.to_vec(),
            failed: without
                .iter()
                .map(|at| (*at, "damaged".to_owned()))
                .collect(),
            ..Replayed::default()
        };
        if !with.is_empty() {
            let count = u32::try_from(with.len()).unwrap();
            replayed.parts = vec![part(at(RETRY, partition), count)];
            replayed.retries = vec![(0, with.iter().map(entry).collect())];
        }
        replayed
    }

    fn answer(&mut self, trouble: bool, failed: usize) {
        let Some(job) = self.reads.pop_front() else {
            return;
        };
        let result = if trouble {
            let reason = "the disk is slow".to_owned();
            Err(ReadTrouble { reason })
        } else {
            Ok(ReadResult::Replay(self.copied(&job, failed)))
        };
        let done = ReadDone { id: job.id, result };
        let now = self.moment();
        let actions = self.runner.read(done, now);
        self.take(actions);
    }

    fn commit(&mut self) {
        let Some((id, change)) = self.proposals.pop_front() else {
            return;
        };
        let Change::Replay(step) = &change else {
            panic!("a runner proposes steps only")
        };
        let outcome = self.bench.run(change.clone()).outcome;
        let told: Result<(), &Refusal> = outcome.as_ref().map(drop);
        let now = self.moment();
        self.runner
            .applied(&self.bench.state, (id, &change, told), now);
        if outcome.is_err() {
            return;
        }
        let (number, partition) = (step.job.0, step.partition.partition);
        for offset in &step.done {
            let letter = self.letters.remove(&(partition, offset.get())).unwrap();
            assert_eq!(letter.job, Some(number), "an entry of the job");
            let is_first = self
                .moved
                .insert((partition, letter.origin, letter.replays));
            assert!(is_first, "each letter is replayed once");
            let end = &mut self.retry_ends[partition as usize];
            self.out.insert((partition, *end), (letter, number));
            *end += 1;
        }
        for offset in &step.failed {
            let letter = self.letters.get_mut(&(partition, offset.get())).unwrap();
            assert_eq!(letter.job.take(), Some(number), "an entry of the job");
        }
        let counts = self.jobs.get_mut(&number).unwrap();
        counts.replayed += u64::try_from(step.done.len()).unwrap();
        counts.failed += u64::try_from(step.failed.len()).unwrap();
        self.release_ended();
    }

    pub(super) fn restart(&mut self) {
        self.bench.restart();
        self.runner = Replays::default();
        self.reads.clear();
        self.proposals.clear();
        self.mono = 0;
    }

    fn agree(&self) {
        let Some(queue) = self.bench.state.dead_letters.get(topic_id(DEAD)) else {
            assert!(self.letters.is_empty());
            return;
        };
        let mut found = BTreeMap::new();
        for partition in 0..PARTITIONS {
            for (at, entry) in queue.entries(partition) {
                let job = entry.job.map(|job| job.0);
                found.insert((partition, at.get()), (entry.replays, job));
            }
        }
        let expected = self.letters.iter();
        let expected = expected.map(|(place, it)| (*place, (it.replays, it.job)));
        assert_eq!(found, expected.collect::<BTreeMap<_, _>>());
        for (number, counts) in &self.jobs {
            let job = self
                .bench
                .state
                .dead_letters
                .jobs()
                .get(JobNumber(*number))
                .unwrap();
            let told = Counts {
                matched: job.matched,
                replayed: job.replayed,
                failed: job.failed,
                failed_again: job.failed_again,
                skipped: job.skipped,
            };
            assert_eq!((number, told), (number, *counts));
        }
        let moves = queue.trend().of_last(100_000, self.bench.wall());
        assert_eq!(
            moves.arrived - moves.departed(),
            queue.depth(),
            "nothing is lost"
        );
        let replayed = self
            .jobs
            .values()
            .map(|counts| counts.replayed)
            .sum::<u64>();
        assert_eq!(moves.replayed, replayed);
    }

    pub(super) fn run(&mut self, op: &Op) {
        match op {
            Op::Die(at, count) => self.die(*at, *count),
            Op::Start(run, canary, keeps) => self.start(*run, *canary, *keeps),
            Op::Control(job, control) => self.control(*job, *control),
            Op::Discard(at, from, more) => self.discard(*at, *from, *more),
            Op::Retain(at, more) => self.retain(*at, *more),
            Op::Settle(at, dies) => self.settle(*at, *dies),
            Op::Tick(ms) => self.tick(*ms),
            Op::Answer(trouble, failed) => self.answer(*trouble, *failed),
            Op::Commit => self.commit(),
            Op::Restart => self.restart(),
        }
        self.agree();
    }

    /// All goes well from now on: every job ends.
    pub(super) fn finish(&mut self) {
        for number in 1..=self.jobs.len() {
            self.control(u64::try_from(number).unwrap(), JobControl::Resume);
        }
        for _ in 0..2_000 {
            if self
                .bench
                .state
                .dead_letters
                .jobs()
                .active()
                .next()
                .is_none()
            {
                return;
            }
            self.run(&Op::Tick(100));
            self.run(&Op::Answer(false, 0));
            self.run(&Op::Commit);
            (0..PARTITIONS).for_each(|at| self.run(&Op::Settle(at, false)));
        }
        panic!("a job does not end");
    }
}
