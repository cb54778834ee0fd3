//! Settlements against a naive model: every record by itself, with restarts in between.

use std::collections::BTreeMap;

use proptest::prelude::*;
use varvelog_store::{Offset, PartitionId, WallMs};

use super::codec::note_of;
use super::sample::*;
use crate::core::command::{Change, MakeDue, Settle};
use crate::core::durable_groups::Progress;
use crate::core::endings::Endings;
use crate::core::failure::{Ending, FailureNote, Wait};
use crate::core::handed_out::HandOuts;
use crate::core::retries::{RetryEntry, RetryProgress};

/// A record of the source or of the retry topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Record {
    done: bool,
    ending: Option<Ending>,
    /// Failures and due time of what is noted.
    note: Option<(u32, Wait)>,
    /// The lease that has it.
    out: Option<u64>,
    /// In the retry topic.
    entry: Option<RetryEntry>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    source: Vec<Record>,
    retries: Vec<Record>,
    dead: u64,
    start: u64,
    expired: u64,
}

#[derive(Debug, Clone)]
enum Op {
    Append(u32),
    /// Of the source or the retry topic, with a copy of each record.
    Settle(bool, u64, u64, To),
    Note(bool, u64, i64),
    HandOut(bool, u64, u64),
    MakeDue(bool, u64),
    Commit(u64),
    Reset(u64),
    DeleteRecords(u64),
    Pass(u64),
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Nowhere,
    Skipped,
    Retry,
    DeadLetter,
}

fn ops() -> impl Strategy<Value = Op> {
    let to = prop_oneof![
        2 => Just(To::Nowhere),
        1 => Just(To::Skipped),
        3 => Just(To::Retry),
        1 => Just(To::DeadLetter),
    ];
    let settle = (any::<bool>(), 0..24_u64, 0..4_u64, to);
    prop_oneof![
        2 => (1..6_u32).prop_map(Op::Append),
        8 => settle.prop_map(|(retry, first, more, to)| Op::Settle(retry, first, more, to)),
        2 => (any::<bool>(), 0..24_u64, 0..50_i64)
            .prop_map(|(retry, record, due)| Op::Note(retry, record, due)),
        3 => (any::<bool>(), 0..24_u64, 0..5_u64)
            .prop_map(|(retry, first, more)| Op::HandOut(retry, first, more)),
        1 => (any::<bool>(), 0..24_u64).prop_map(|(retry, record)| Op::MakeDue(retry, record)),
        1 => (0..24_u64).prop_map(Op::Commit),
        1 => (0..24_u64).prop_map(Op::Reset),
        1 => (0..24_u64).prop_map(Op::DeleteRecords),
        1 => (1..9_u64).prop_map(Op::Pass),
        1 => Just(Op::Restart),
    ]
}

impl Record {
    fn finish(&mut self, ending: Option<Ending>) {
        if !self.done {
            self.ending = ending.or(self.ending);
        }
        self.done = true;
        (self.note, self.out) = (None, None);
    }
}

impl Model {
    fn records(&mut self, retry: bool) -> &mut Vec<Record> {
        if retry {
            &mut self.retries
        } else {
            &mut self.source
        }
    }

    /// Whether it is carried out.
    fn settle(&mut self, retry: bool, (first, last): (u64, u64), to: To) -> bool {
        let records = self.records(retry);
        let Some(named) = records.get_mut(at_index(first)..at_index(last + 1)) else {
            return false;
        };
        let appends = matches!(to, To::Retry | To::DeadLetter);
        if appends && named.iter().any(|record| record.done) {
            return false;
        }
        let ending = match to {
            To::Nowhere => None,
            To::Skipped => Some(Ending::Skipped),
            To::Retry => Some(Ending::Retried),
            To::DeadLetter => Some(Ending::DeadLettered),
        };
        for record in named {
            record.finish(ending);
        }
        let copies = last + 1 - first;
        match to {
            To::Nowhere | To::Skipped => {}
            To::DeadLetter => self.dead += copies,
            To::Retry => self.retries.extend((first..=last).map(|origin| Record {
                entry: Some(entry(origin)),
                ..Record::default()
            })),
        }
        true
    }

    /// All below is done, and nothing from it on if `again`.
    fn move_to(&mut self, to: u64, again: bool) {
        for (record, offset) in self.source.iter_mut().zip(0..) {
            if offset < to {
                record.finish(None);
            } else if again {
                record.done = false;
            }
        }
    }
}

fn at_index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn entry(origin: u64) -> RetryEntry {
    RetryEntry {
        due: WallMs(30),
        origin: offset(origin),
        failures: 2,
        suspect: true,
    }
}

fn place(retry: bool) -> PartitionId {
    if retry { at(101, 0) } else { at(1, 0) }
}

fn settle(bench: &Bench, retry: bool, (first, last): (u64, u64), to: To) -> Change {
    let mut settle = settle_of(bench, "email", place(retry));
    settle.ranges = vec![(offset(first), offset(last))];
    let ending = match to {
        To::Nowhere => None,
        To::Skipped => Some(Ending::Skipped),
        To::Retry => Some(Ending::Retried),
        To::DeadLetter => Some(Ending::DeadLettered),
    };
    let all = first..=last;
    let endings = all.clone().filter_map(|at| Some((offset(at), ending?)));
    settle.endings = endings.collect();
    let copies = u32::try_from(last + 1 - first).unwrap();
    match to {
        To::Nowhere | To::Skipped => {}
        To::DeadLetter => {
            settle.append.parts = vec![part(at(151, 0), copies)];
            settle.deaths = vec![(0, deaths(copies))];
        }
        To::Retry => {
            settle.append.parts = vec![part(at(101, 0), copies)];
            settle.retries = vec![(0, all.map(entry).collect())];
        }
    }
    Change::Settle(settle)
}

fn step(bench: &mut Bench, model: &mut Model, op: &Op) {
    let end = u64::try_from(model.source.len()).unwrap();
    match *op {
        Op::Append(records) => {
            bench.must(append(vec![part(at(1, 0), records)]));
            let more = model.source.len() + usize::try_from(records).unwrap();
            model.source.resize(more, Record::default());
        }
        Op::Settle(retry, first, more, to) => {
            let range = (first, first + more);
            let change = settle(bench, retry, range, to);
            let done = bench.run(change).outcome.is_ok();
            assert_eq!(done, model.settle(retry, range, to), "{op:?}");
        }
        Op::Note(retry, record, due) => note(bench, model, (retry, record), due),
        Op::HandOut(retry, first, more) => give_out(bench, model, retry, (first, first + more)),
        Op::MakeDue(retry, record) => make_due(bench, model, (retry, record)),
        Op::Commit(to) => {
            let to = to.min(end);
            bench.must(commit("email", &[(at(1, 0), to)], true));
            let to = to.max(model.start);
            let low = low(&model.source, model.start);
            if to < low {
                model
                    .source
                    .iter_mut()
                    .for_each(|record| record.ending = None);
            }
            model.move_to(to, to < low);
        }
        Op::Reset(to) => {
            bench.must(reset("email", &[(at(1, 0), to)]));
            model.move_to(to.clamp(model.start, end), true);
            for record in &mut model.source {
                (record.note, record.ending, record.out) = (None, None, None);
            }
        }
        Op::DeleteRecords(start) => {
            let start = start.min(end);
            bench.must(move_log_start(at(1, 0), start));
            let gone = &model.source[..at_index(start)];
            let lost = gone.iter().filter(|record| !record.done).count();
            model.expired += u64::try_from(lost).unwrap();
            model.start = model.start.max(start);
            model.move_to(start, false);
        }
        Op::Pass(ms) => bench.pass(ms),
        Op::Restart => bench.restart(),
    }
}

fn note(bench: &mut Bench, model: &mut Model, (retry, at): (bool, u64), due: i64) {
    let wait = Wait::Until(WallMs(due));
    let settle = Settle {
        notes: vec![(offset(at), note_of(wait))],
        ..settle_of(bench, "email", place(retry))
    };
    let done = bench.run(Change::Settle(settle)).outcome.is_ok();
    let record = model.records(retry).get_mut(at_index(at));
    assert_eq!(done, record.is_some());
    if let Some(record) = record.filter(|record| !record.done) {
        (record.note, record.out) = (Some((2, wait)), None);
    }
}

fn give_out(bench: &mut Bench, model: &mut Model, retry: bool, (first, last): (u64, u64)) {
    let given = bench.run(Change::HandOut(hand_out(
        bench,
        place(retry),
        (first, last),
    )));
    let records = model
        .records(retry)
        .get_mut(at_index(first)..at_index(last + 1));
    assert_eq!(given.outcome.is_ok(), records.is_some());
    for record in records.into_iter().flatten().filter(|record| !record.done) {
        record.out = Some(first + 1);
    }
}

fn make_due(bench: &mut Bench, model: &mut Model, (retry, at): (bool, u64)) {
    bench.must(Change::MakeDue(MakeDue {
        group: group_name("email"),
        records: vec![(place(retry), offset(at))],
    }));
    let now = bench.wall();
    let Some(record) = model.records(retry).get_mut(at_index(at)) else {
        return;
    };
    if let Some((_, Wait::Until(due))) = &mut record.note {
        *due = (*due).min(now);
    }
    if let Some(entry) = record.entry.as_mut().filter(|_| !record.done) {
        entry.due = entry.due.min(now);
    }
}

fn low(records: &[Record], start: u64) -> u64 {
    let open = records.iter().position(|record| !record.done);
    let low = open.unwrap_or(records.len());
    u64::try_from(low).unwrap().max(start)
}

/// What is kept of a record, from the state.
fn shown(
    offset: Offset,
    done: bool,
    notes: &BTreeMap<Offset, FailureNote>,
    (endings, out): (&Endings, &HandOuts),
) -> Record {
    let mut held = out.iter();
    let held = held.find(|(first, out)| (*first..=out.last).contains(&offset));
    Record {
        done,
        ending: endings.get(offset),
        note: notes.get(&offset).map(|note| (note.failures, note.wait)),
        out: held.map(|(_, out)| out.lease.0),
        entry: None,
    }
}

fn source(progress: &Progress, end: u64) -> Vec<Record> {
    let all = (0..end).map(offset);
    let rest = (progress.endings(), progress.out());
    all.map(|at| shown(at, progress.is_done(at), progress.notes(), rest))
        .collect()
}

fn retries(retries: &RetryProgress, model: &Model) -> Vec<Record> {
    let rest = (retries.endings(), retries.out());
    let one = |(at, expected): (u64, &Record)| {
        let at = offset(at);
        let pending = retries.pending().get(&at).copied();
        Record {
            // Of what is done nothing more is known.
            entry: pending.or(expected.entry),
            ..shown(at, pending.is_none(), retries.notes(), rest)
        }
    };
    (0..).zip(&model.retries).map(one).collect()
}

fn compare(bench: &Bench, model: &Model) {
    let progress = bench.progress("email", at(1, 0));
    let end = u64::try_from(model.source.len()).unwrap();
    assert_eq!(source(progress, end), model.source);
    assert_eq!(progress.low().get(), low(&model.source, model.start));
    assert_eq!(progress.expired_unsettled(), model.expired);
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    let kept = group.retry(at(101, 0), &bench.state.topics).unwrap();
    assert_eq!(retries(kept, model), model.retries);
    let ends = [101, 151].map(|topic| bench.state.topics.partition(at(topic, 0)).unwrap().next());
    let copies = u64::try_from(model.retries.len()).unwrap();
    assert_eq!(ends.map(Offset::get), [copies, model.dead]);
}

proptest! {
    #[test]
    fn settlements_do_to_each_record_what_a_naive_model_says(
        ops in prop::collection::vec(ops(), 1..60),
    ) {
        let mut bench = Bench::with_group();
        let mut model = Model { source: vec![Record::default(); 10], ..Model::default() };
        for op in &ops {
            step(&mut bench, &mut model, op);
            compare(&bench, &model);
        }
        bench.restart();
        compare(&bench, &model);
    }
}
