//! What replays cannot do, and what ends them.

use super::replays::{RETRY, dead, die, job, left, next_step, queue, start_of, step_of};
use super::sample::*;
use crate::core::command::Change;
use crate::core::dead_letters::JobState;

#[test]
fn a_job_ends_with_its_group_or_its_target() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 1)], |_| {}));
    bench.must(start_of(&bench, &[(0, 2, 3)], |order| {
        order.target = Some((topic_id(2), "bills".into()));
    }));
    bench.must(delete_group("email", false));
    assert_eq!(job(&bench, 1).state, JobState::Failed);
    assert_eq!(
        job(&bench, 2).state,
        JobState::Running,
        "its target is there"
    );
    bench.refused(start_of(&bench, &[(0, 4, 5)], |_| {}));
    bench.must(delete_topic(2, false));
    assert_eq!(job(&bench, 2).state, JobState::Failed);
    assert_eq!((queue(&bench).claimed(), queue(&bench).depth()), (0, 6));
    bench.restart();
}

#[test]
fn what_retention_takes_from_a_job_is_skipped() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 3)], |_| {}));
    bench.must(next_step(&bench, 1));
    bench.must(move_log_start(dead(0), 3));
    assert_eq!((job(&bench, 1).left, job(&bench, 1).skipped), (1, 2));
    bench.must(next_step(&bench, 1));
    assert_eq!(job(&bench, 1).state, JobState::Succeeded);
    bench.restart();
}

#[test]
fn an_entry_that_cannot_be_appended_is_a_dead_letter_again_and_the_job_goes_on() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 3)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |_| {}));
    let mut step = step_of(&bench, (1, 0), 2);
    step.failed = vec![step.done.remove(0)];
    step.error = "damaged".into();
    step.append.parts = vec![part(at(RETRY, 0), 1)];
    step.retries[0].1.remove(0);
    bench.must(Change::Replay(step));
    bench.must(next_step(&bench, 1));
    assert_eq!((job(&bench, 1).replayed, job(&bench, 1).failed), (2, 1));
    assert_eq!(job(&bench, 1).state, JobState::Succeeded);
    assert_eq!(job(&bench, 1).error, "damaged");
    assert_eq!((left(&bench), queue(&bench).claimed()), (vec![0], 0));
    bench.restart();
}

#[test]
fn a_step_that_leaves_out_an_entry_or_brings_another_count_of_copies_is_refused() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, (0, 6)));
    bench.must(start_of(&bench, &[(0, 0, 9)], |_| {}));
    let mut late = step_of(&bench, (1, 0), 2);
    late.done.remove(0);
    late.append.parts = vec![part(at(RETRY, 0), 1)];
    late.retries[0].1.remove(0);
    bench.refused(Change::Replay(late));
    let mut more = step_of(&bench, (1, 0), 2);
    more.done.remove(1);
    bench.refused(Change::Replay(more));
    let mut elsewhere = step_of(&bench, (1, 0), 2);
    elsewhere.append.parts = vec![part(at(RETRY, 1), 2)];
    bench.refused(Change::Replay(elsewhere));
    assert_eq!(queue(&bench).depth(), 6);
}
