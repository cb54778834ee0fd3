//! The machines of replays against a plain list of dead letters: commands, steps as the broker
//! makes them, failures of reading, and restarts at any point.

use std::time::Duration;

use proptest::prelude::*;

use super::replay_world::{Counts, PARTITIONS, World};
use super::replays::start_of;
use crate::core::dead_letters::JobState;
use crate::core::replay_command::JobControl;

#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Records of a partition die for the first time.
    Die(u32, u32),
    /// A replay of a part of what is there, with a canary and whether it keeps on.
    Start((u32, u64, u64), u32, bool),
    Control(u64, JobControl),
    Discard(u32, u64, u64),
    Retain(u32, u64),
    /// One replayed record is processed, or dies again.
    Settle(u32, bool),
    /// Time passes, and what is due is done.
    Tick(u64),
    /// The copier answers: with trouble, or how many cannot be copied.
    Answer(bool, usize),
    /// The oldest proposal is committed.
    Commit,
    /// The broker is killed: what it had on its way is lost.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let control = prop_oneof![
        1 => Just(JobControl::Pause),
        3 => Just(JobControl::Resume),
        1 => Just(JobControl::Cancel),
    ];
    let run =
        || (0..PARTITIONS, 0..40_u64, 0..25_u64).prop_map(|(at, from, more)| (at, from, more));
    prop_oneof![
        3 => (0..PARTITIONS, 1..6_u32).prop_map(|(at, count)| Op::Die(at, count)),
        3 => (run(), prop_oneof![3 => Just(0), 1 => 1..4_u32], any::<bool>())
            .prop_map(|(run, canary, keeps)| Op::Start(run, canary, keeps)),
        2 => (1..5_u64, control).prop_map(|(job, control)| Op::Control(job, control)),
        1 => run().prop_map(|(at, from, more)| Op::Discard(at, from, more)),
        1 => (0..PARTITIONS, 0..4_u64).prop_map(|(at, more)| Op::Retain(at, more)),
        4 => (0..PARTITIONS, any::<bool>()).prop_map(|(at, dies)| Op::Settle(at, dies)),
        6 => (0..400_u64).prop_map(Op::Tick),
        6 => (prop::bool::weighted(0.2), prop_oneof![4 => Just(0), 1 => 1..3_usize])
            .prop_map(|(trouble, failed)| Op::Answer(trouble, failed)),
        8 => Just(Op::Commit),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn jobs_replay_each_letter_once_whatever_happens_and_come_to_an_end(
        ops in prop::collection::vec(op(), 0..90),
    ) {
        let mut world = World::new();
        for op in &ops {
            world.run(op);
        }
        world.restart();
        world.finish();
        let jobs = world.bench.state.dead_letters.jobs();
        for job in jobs.iter() {
            prop_assert!(!job.state.is_active());
            if job.state == JobState::Succeeded {
                let lost = job.matched - job.replayed - job.failed;
                prop_assert!(lost <= job.skipped, "each was replayed, failed or gone");
            }
        }
    }
}

/// Entries of a job at a speed, replayed until it ends; returns how long that took.
fn time_of(entries: u32, millis_per_second: u32) -> Duration {
    let mut world = World::new();
    world.die(0, entries);
    let start = start_of(&world.bench, &[(0, 0, 999)], |order| {
        order.millis_per_second = millis_per_second;
    });
    world.bench.must(start);
    world.jobs.insert(
        1,
        Counts {
            matched: entries.into(),
            ..Counts::default()
        },
    );
    world
        .letters
        .values_mut()
        .for_each(|letter| letter.job = Some(1));
    while world
        .bench
        .state
        .dead_letters
        .jobs()
        .active()
        .next()
        .is_some()
    {
        world.run(&Op::Tick(1));
        world.run(&Op::Answer(false, 0));
        world.run(&Op::Commit);
    }
    Duration::from_millis(world.mono)
}

#[test]
fn a_job_keeps_to_its_speed() {
    assert_eq!(
        time_of(4, 1_000).as_secs(),
        3,
        "the first at once, then one a second"
    );
    let fast = time_of(90, 50_000);
    let expected = Duration::from_millis(1_700)..=Duration::from_millis(1_850);
    assert!(expected.contains(&fast), "{fast:?}");
}

#[test]
fn a_job_holds_while_its_group_is_over_its_limits_and_goes_on_by_itself() {
    let mut world = World::new();
    world.run(&Op::Die(0, 20));
    world.run(&Op::Start((0, 0, 19), 0, true));
    world.is_over = true;
    for _ in 0..10 {
        world.run(&Op::Tick(1_000));
        let wakes = world.next_deadline().expect("it looks again");
        assert!(wakes > world.mono && wakes <= world.mono + 1_000);
    }
    assert_eq!(world.jobs[&1].replayed, 0);
    world.is_over = false;
    world.finish();
    assert_eq!(world.jobs[&1].replayed, 20);
}
