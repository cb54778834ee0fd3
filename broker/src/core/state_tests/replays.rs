//! Replays and discards as commands make them.

use varvelog_store::{Offset, PartitionId};

use super::sample::*;
use crate::core::applied::Outcome;
use crate::core::command::{Append, Change, Settle};
use crate::core::dead_letters::{Claims, Job, JobNumber, JobState, Queue, ReplayOrder};
use crate::core::failure::Ending;
use crate::core::refusal::{AppendRefusal, Refusal, ReplayRefusal};
use crate::core::replay_command::{Discard, JobControl, ReplayStep, StartReplay};
use crate::core::retries::RetryEntry;

pub(super) const DEAD: u8 = 151;
pub(super) const RETRY: u8 = 101;

pub(super) fn dead(partition: u32) -> PartitionId {
    at(DEAD, partition)
}

/// Records of a source partition die, from `first` on.
pub(super) fn die(bench: &Bench, partition: u32, (first, count): (u64, u32)) -> Change {
    let last = first + u64::from(count) - 1;
    let endings = (first..=last).map(|record| (offset(record), Ending::DeadLettered));
    Change::Settle(Settle {
        ranges: vec![(offset(first), offset(last))],
        endings: endings.collect(),
        append: Append {
            request: None,
            parts: vec![part(dead(partition), count)],
        },
        deaths: vec![(0, deaths(count))],
        ..settle_of(bench, "email", at(1, partition))
    })
}

/// The two youngest records of partition 0 die, and their keys are parked.
pub(super) fn die_parked(bench: &Bench) -> Change {
    let Change::Settle(mut settle) = die(bench, 0, (10, 2)) else {
        unreachable!()
    };
    for (key, death) in (70..).zip(&mut settle.deaths[0].1) {
        death.parked_key = Some(key);
        death.replays = 1;
    }
    settle.parked = vec![70, 71];
    Change::Settle(settle)
}

/// A replay of the entries within runs of partition, first and last offset.
pub(super) fn start_of(
    bench: &Bench,
    runs: &[(u32, u64, u64)],
    change: impl FnOnce(&mut ReplayOrder),
) -> Change {
    let queue = bench.state.dead_letters.get(topic_id(DEAD)).unwrap();
    let (claims, selected) = claims_of(queue, runs);
    let mut order = ReplayOrder {
        millis_per_second: 50_000,
        ..ReplayOrder::default()
    };
    change(&mut order);
    Change::StartReplay(StartReplay {
        queue: topic_id(DEAD),
        claims,
        selected,
        skipped: 0,
        order,
    })
}

fn claims_of(queue: &Queue, runs: &[(u32, u64, u64)]) -> (Claims, u64) {
    let (mut claims, mut selected) = (Claims::new(), 0);
    for (partition, first, last) in runs {
        let within = queue.within(*partition, (offset(*first), offset(*last)));
        for (index, (at, _)) in within.enumerate() {
            claims.add(*partition, at, index > 0);
            selected += 1;
        }
    }
    (claims, selected)
}

fn discard_of(bench: &Bench, runs: &[(u32, u64, u64)]) -> Change {
    let queue = bench.state.dead_letters.get(topic_id(DEAD)).unwrap();
    let (claims, selected) = claims_of(queue, runs);
    Change::Discard(Discard {
        queue: topic_id(DEAD),
        claims,
        selected,
        note: "of no use".into(),
        detail: "all".into(),
    })
}

pub(super) fn job(bench: &Bench, number: u64) -> &Job {
    bench
        .state
        .dead_letters
        .jobs()
        .get(JobNumber(number))
        .unwrap()
}

fn next(bench: &Bench, number: u64, partition: u32) -> Vec<Offset> {
    let job = job(bench, number);
    let queue = bench.state.dead_letters.get(topic_id(DEAD)).unwrap();
    let next = queue.claimed_by(job.number, (partition, &job.claims));
    next.map(|(at, _)| at).collect()
}

/// The next `count` entries of a job in a partition, given out again as records whose first
/// appends lay as far behind 100 as they do in the dead-letter topic.
pub(super) fn step_of(bench: &Bench, (number, partition): (u64, u32), count: usize) -> ReplayStep {
    let done: Vec<Offset> = next(bench, number, partition)
        .into_iter()
        .take(count)
        .collect();
    let entries = done.iter().map(|at| RetryEntry {
        due: bench.wall(),
        origin: at.plus(100),
        failures: 0,
        suspect: false,
    });
    let count = u32::try_from(done.len()).unwrap();
    ReplayStep {
        job: JobNumber(number),
        partition: dead(partition),
        append: Append {
            request: None,
            parts: vec![part(at(RETRY, partition), count)],
        },
        retries: vec![(0, entries.collect())],
        done,
        failed: Vec::new(),
        error: String::new(),
    }
}

/// One entry of partition 0.
pub(super) fn next_step(bench: &Bench, number: u64) -> Change {
    Change::Replay(step_of(bench, (number, 0), 1))
}

fn control(number: u64, control: JobControl) -> Change {
    Change::ControlReplay {
        job: JobNumber(number),
        control,
    }
}

pub(super) fn queue(bench: &Bench) -> &Queue {
    bench.state.dead_letters.get(topic_id(DEAD)).unwrap()
}

pub(super) fn left(bench: &Bench) -> Vec<u64> {
    queue(bench).entries(0).map(|(at, _)| at.get()).collect()
}

/// A replayed record is processed.
fn processed(bench: &mut Bench, offset: u64) {
    let settle = bench.settle("email", at(RETRY, 0), &[(offset, offset)]);
    bench.must(settle);
}

/// A replayed record dies once more.
fn die_again(bench: &mut Bench, (number, at_retry): (u64, u64)) {
    let mut death = deaths(1);
    death[0].replays = 1;
    death[0].replayed_by = Some(JobNumber(number));
    let settle = Settle {
        ranges: vec![(offset(at_retry), offset(at_retry))],
        endings: vec![(offset(at_retry), Ending::DeadLettered)],
        append: Append {
            request: None,
            parts: vec![part(dead(0), 1)],
        },
        deaths: vec![(0, death)],
        ..settle_of(bench, "email", at(RETRY, 0))
    };
    bench.must(Change::Settle(settle));
}

#[test]
fn t43_replayed_entries_wait_in_the_retry_topic_at_attempt_one_and_are_gone_from_the_queue() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 1, 1), (0, 3, 4)], |_| {}));
    assert_eq!((job(&bench, 1).matched, queue(&bench).claimed()), (3, 3));
    bench.must(Change::Replay(step_of(&bench, (1, 0), 3)));
    assert_eq!(left(&bench), [0, 2, 5]);
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    let retries = group.retry(at(RETRY, 0), &bench.state.topics).unwrap();
    let waiting: Vec<_> = retries.pending().values().collect();
    let origins: Vec<u64> = waiting.iter().map(|it| it.origin.get()).collect();
    assert_eq!(origins, [101, 103, 104]);
    assert!(waiting.iter().all(|it| it.failures == 0));
    let moves = queue(&bench).trend().of_last(0, bench.wall());
    assert_eq!((moves.arrived, moves.replayed, moves.discarded), (6, 3, 0));
    assert_eq!(job(&bench, 1).state, JobState::Succeeded);
    bench.restart();
    assert_eq!(queue(&bench).depth(), 3);
}

#[test]
fn t44_of_two_overlapping_jobs_each_entry_is_one_jobs_and_the_other_reports_the_overlap() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 3)], |_| {}));
    bench.must(start_of(&bench, &[(0, 2, 5)], |_| {}));
    assert_eq!((job(&bench, 2).matched, job(&bench, 2).skipped), (2, 2));
    bench.must(Change::Replay(step_of(&bench, (2, 0), 9)));
    bench.must(Change::Replay(step_of(&bench, (1, 0), 9)));
    assert_eq!(left(&bench), [0_u64; 0]);
    for number in [1, 2] {
        assert_eq!(job(&bench, number).state, JobState::Succeeded);
    }
    assert_eq!(job(&bench, 1).replayed + job(&bench, 2).replayed, 6);
    bench.restart();
}

#[test]
fn t45_a_replay_of_all_ends_though_its_records_die_again_and_those_are_new_entries() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 3)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |_| {}));
    for step in 0..3 {
        bench.must(next_step(&bench, 1));
        die_again(&mut bench, (1, step));
    }
    assert_eq!(job(&bench, 1).state, JobState::Succeeded);
    assert_eq!(
        (job(&bench, 1).replayed, job(&bench, 1).failed_again),
        (3, 3)
    );
    assert_eq!(left(&bench), [3, 4, 5]);
    assert!(
        queue(&bench)
            .entries(0)
            .all(|(_, entry)| entry.replays == 1)
    );
    bench.restart();
}

#[test]
fn t45_a_job_most_of_whose_records_fail_again_ends_early_unless_it_is_to_go_on() {
    for keeps in [false, true] {
        let mut bench = Bench::with_group();
        bench.must(append(vec![part(at(1, 0), 90)]));
        bench.must(die(&bench, 0, (0, 60)));
        bench.must(start_of(&bench, &[(0, 0, 99)], |it| {
            it.keep_on_refail = keeps;
        }));
        bench.must(Change::Replay(step_of(&bench, (1, 0), 30)));
        for record in 0..15 {
            die_again(&mut bench, (1, record));
        }
        assert_eq!(job(&bench, 1).state, JobState::Running, "half is not more");
        die_again(&mut bench, (1, 15));
        let (state, claimed) = (job(&bench, 1).state, queue(&bench).claimed());
        if keeps {
            assert_eq!((state, claimed), (JobState::Running, 30));
        } else {
            assert_eq!((state, claimed), (JobState::Failed, 0));
            assert!(job(&bench, 1).error.contains("more than half"));
        }
        assert_eq!(queue(&bench).depth(), 46);
        bench.restart();
    }
}

#[test]
fn a_canary_goes_first_and_the_rest_only_when_all_of_it_was_processed() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |it| it.canary = 2));
    let refused = bench.refused(Change::Replay(step_of(&bench, (1, 0), 3)));
    assert!(matches!(
        refused,
        Refusal::Replay(ReplayRefusal::Overtaken { .. })
    ));
    bench.must(Change::Replay(step_of(&bench, (1, 0), 2)));
    bench.refused(next_step(&bench, 1));
    processed(&mut bench, 0);
    bench.restart();
    bench.refused(next_step(&bench, 1));
    processed(&mut bench, 1);
    bench.must(Change::Replay(step_of(&bench, (1, 0), 4)));
    assert_eq!(job(&bench, 1).state, JobState::Succeeded);
}

#[test]
fn a_canary_that_fails_again_ends_its_job() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |it| it.canary = 2));
    bench.must(Change::Replay(step_of(&bench, (1, 0), 2)));
    processed(&mut bench, 0);
    die_again(&mut bench, (1, 1));
    assert_eq!(job(&bench, 1).state, JobState::Failed);
    assert_eq!((queue(&bench).claimed(), queue(&bench).depth()), (0, 5));
    bench.restart();
}

#[test]
fn the_same_request_is_the_same_job_and_other_arguments_with_it_are_refused() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    let start = |bench: &Bench, hash| {
        start_of(bench, &[(0, 0, 9)], |order| {
            order.request_id = "deploy-42".into();
            order.content_hash = hash;
        })
    };
    for _ in 0..3 {
        let outcome = bench.must(start(&bench, 7));
        assert_eq!(outcome, Outcome::Replay(JobNumber(1)));
        bench.restart();
    }
    let refused = bench.refused(start(&bench, 8));
    assert!(matches!(
        refused,
        Refusal::Append(AppendRefusal::RequestIdReused { .. })
    ));
    assert_eq!(bench.state.dead_letters.audit().newest_first().count(), 1);
    bench.pass(31 * 24 * 3_600_000);
    bench.refused(start(&bench, 8));
    bench.must(control(1, JobControl::Cancel));
    bench.pass(31 * 24 * 3_600_000);
    bench.must(start(&bench, 8));
    assert_eq!(job(&bench, 2).matched, 6, "30 days after the end");
}

#[test]
fn a_paused_job_keeps_its_entries_and_a_cancelled_one_gives_them_back() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |_| {}));
    bench.must(next_step(&bench, 1));
    bench.must(control(1, JobControl::Pause));
    bench.must(control(1, JobControl::Pause));
    bench.refused(next_step(&bench, 1));
    bench.restart();
    assert_eq!(queue(&bench).claimed(), 5);
    bench.must(control(1, JobControl::Resume));
    bench.must(next_step(&bench, 1));
    bench.must(control(1, JobControl::Cancel));
    assert_eq!((queue(&bench).claimed(), queue(&bench).depth()), (0, 4));
    bench.must(control(1, JobControl::Cancel));
    for ended in [JobControl::Pause, JobControl::Resume] {
        let refused = bench.refused(control(1, ended));
        let id = "replay-1".to_owned();
        let state = "cancelled";
        assert_eq!(refused, ReplayRefusal::Ended { id, state }.into());
    }
    let audit = bench.state.dead_letters.audit().newest_first();
    let told: Vec<_> = audit.map(|(_, it)| (it.action.clone(), it.count)).collect();
    let told: Vec<_> = told
        .iter()
        .map(|(it, count)| (it.as_str(), *count))
        .collect();
    let expected = [
        ("CancelReplayJob", 4),
        ("ResumeReplayJob", 5),
        ("PauseReplayJob", 5),
        ("ReplayDeadLetters", 6),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_discard_passes_over_what_a_replay_has_claimed() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 2, 3)], |_| {}));
    let outcome = bench.must(discard_of(&bench, &[(0, 1, 4)]));
    let (discarded, skipped) = (2, 2);
    assert_eq!(outcome, Outcome::Discarded { discarded, skipped });
    assert_eq!(left(&bench), [0, 2, 3, 5]);
    let moves = queue(&bench).trend().of_last(0, bench.wall());
    assert_eq!((moves.replayed, moves.discarded), (0, 2));
    bench.restart();
}

#[test]
fn a_key_is_free_again_when_its_last_dead_letter_leaves_however_it_does() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(1, 0), 5)]));
    let settings = crate::core::settings::GroupSettings {
        on_failure: crate::core::settings::OnFailure::Hold,
        on_head_dead: crate::core::settings::OnHeadDead::Park,
        ..crate::core::settings::GroupSettings::default()
    };
    let group = group_name("email");
    bench.must(Change::UpdateGroup { group, settings });
    bench.must(die_parked(&bench));
    let parked = |bench: &Bench| -> Vec<u64> {
        let progress = bench.progress("email", at(1, 0));
        progress.parked.keys().copied().collect()
    };
    assert_eq!(parked(&bench), [70, 71]);
    bench.must(start_of(&bench, &[(0, 0, 0)], |_| {}));
    bench.must(next_step(&bench, 1));
    assert_eq!(parked(&bench), [71]);
    bench.restart();
    bench.must(discard_of(&bench, &[(0, 0, 9)]));
    assert_eq!(parked(&bench), [0_u64; 0]);
    bench.restart();
}
