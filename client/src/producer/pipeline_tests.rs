//! The pipeline against a model of a broker.

use std::time::Duration;

use proptest::prelude::*;
use tonic::Code;
use varvelog_proto::v1;

use super::error::SendError;
use super::pipeline::{PipelineConfig, Settled};
use super::pipeline_model::{CONFIG, Step, World, parse, refusal, run, steps};
use crate::error::reason;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_each_batch_is_there_once_in_order_or_its_error_says_so(
        steps in steps(false, 3),
    ) {
        run(CONFIG, &steps).check(true);
    }

    #[test]
    fn what_passes_by_itself_never_fails_a_batch(steps in steps(false, 1)) {
        let poison = |step: &Step| matches!(step, Step::PushPoison(_));
        let steps: Vec<_> = steps.into_iter().filter(|step| !poison(step)).collect();
        let patient = PipelineConfig {
            in_flight: 5,
            in_flight_per_partition: 5,
            delivery_timeout: Duration::from_hours(1),
            ..CONFIG
        };
        let world = run(patient, &steps);
        world.check(true);
        for settled in &world.settled {
            prop_assert!(settled.outcome.is_ok(), "{settled:?}");
        }
    }

    #[test]
    fn a_broker_that_forgets_producers_makes_no_error_dishonest(steps in steps(true, 3)) {
        run(CONFIG, &steps).check(true);
    }

    #[test]
    fn without_idempotence_nothing_is_lost_or_promised_falsely(steps in steps(false, 3)) {
        run(PipelineConfig { idempotent: false, ..CONFIG }, &steps).check(false);
    }
}

fn push_all(world: &mut World, partitions: &[u32]) {
    for partition in partitions {
        world.push(*partition, false);
    }
}

#[test]
fn an_answer_lost_after_the_append_is_made_up_for_by_a_duplicate() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0, 0]);
    world.take(&Step::Pump);
    world.take(&Step::Break(2));
    assert_eq!(world.model.logs[&0], [0, 1]);
    world.settle_down();
    world.check(true);
    let duplicate = |settled: &Settled<u32>| settled.outcome.as_ref().is_ok_and(|p| p.duplicate);
    assert_eq!(
        world.settled.iter().map(duplicate).collect::<Vec<_>>(),
        [true, true, false]
    );
}

#[test]
fn a_poisoned_batch_fails_alone_and_the_ones_behind_it_go_on() {
    let mut world = World::new(CONFIG);
    world.push(0, false);
    world.push(0, true);
    world.push(0, false);
    world.push(1, false);
    world.settle_down();
    world.check(true);
    let failed = world
        .settled
        .iter()
        .filter(|settled| settled.outcome.is_err());
    assert_eq!(
        failed.map(|settled| settled.payload).collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(world.model.logs[&0], [0, 2]);
    assert_eq!(world.model.next_producer, 1, "no new identity was needed");
}

#[test]
fn a_refusal_with_a_time_is_not_tried_before_that_time() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Refuse);
    world.take(&Step::Answer);
    world.take(&Step::Wait(49));
    world.take(&Step::Pump);
    assert!(world.inbox.is_empty());
    assert!(world.pipeline.next_wakeup(world.now) <= Some(world.now + Duration::from_millis(1)));
    world.take(&Step::Wait(1));
    world.take(&Step::Pump);
    assert_eq!(world.inbox.len(), 1);
}

#[test]
fn out_of_time_in_flight_may_have_applied_and_refused_has_not() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    push_all(&mut world, &[1]);
    world.take(&Step::Wait(5_000));
    let may: Vec<_> = world
        .settled
        .iter()
        .map(|settled| settled.outcome.as_ref().expect_err("out of time"))
        .map(|error| {
            (
                matches!(error, SendError::TimedOut { .. }),
                error.may_have_applied(),
            )
        })
        .collect();
    assert_eq!(may, [(true, true), (true, false)]);
}

#[test]
fn an_abandoned_batch_that_was_appended_leaves_no_gap() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(5_000));
    push_all(&mut world, &[0]);
    world.settle_down();
    assert_eq!(world.model.logs[&0], [0, 1]);
    assert_eq!(world.model.next_producer, 1);
}

#[test]
fn an_abandoned_batch_of_unknown_fate_costs_a_new_identity() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(5_000));
    world.take(&Step::Break(0));
    push_all(&mut world, &[0]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [1]);
    assert_eq!(world.model.next_producer, 2);
}

#[test]
fn a_fenced_producer_takes_nothing_more() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0]);
    world.take(&Step::Pump);
    let sequence = world.inbox[0].sequence;
    let fenced = refusal(Code::Aborted, reason::PRODUCER_FENCED, &[("epoch", 3)]);
    world
        .pipeline
        .answered(world.now, sequence, Err(fenced), 0.5)
        .expect("in order");
    push_all(&mut world, &[0]);
    world.take(&Step::Wait(0));
    assert!(world.pipeline.has_ended() && world.pipeline.is_idle());
    let fenced = |settled: &Settled<u32>| {
        let error = settled.outcome.as_ref().expect_err("fenced");
        matches!(error, SendError::Refused { error, .. } if error.is(reason::PRODUCER_FENCED))
    };
    assert!(world.settled.iter().all(fenced));
    assert_eq!(world.settled.len(), 3);
}

#[test]
fn an_answer_out_of_turn_is_a_fault_of_the_stream() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    let answer = Ok(v1::ProduceResponse::default());
    assert!(
        world
            .pipeline
            .answered(world.now, 99, answer.clone(), 0.5)
            .is_err()
    );
    let sequence = world.inbox[0].sequence;
    assert!(
        world
            .pipeline
            .answered(world.now, sequence, answer, 0.5)
            .is_err(),
        "too few results"
    );
    world.take(&Step::Break(1));
    world.settle_down();
    world.check(true);
}

#[test]
fn a_stream_that_can_never_be_opened_fails_what_waits() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 1]);
    let refused = refusal(Code::PermissionDenied, "NOT_ALLOWED", &[]);
    world.pipeline.broken(world.now, &refused, 0.5);
    world.take(&Step::Wait(0));
    assert_eq!(world.settled.len(), 2);
    assert!(world.settled.iter().all(|settled| {
        settled
            .outcome
            .as_ref()
            .is_err_and(|error| !error.may_have_applied())
    }));
}

#[test]
fn a_named_producer_renews_all_partitions_at_once() {
    let mut world = World::new(PipelineConfig {
        named: true,
        ..CONFIG
    });
    push_all(&mut world, &[0, 1, 2]);
    world.settle_down();
    world.model.forget_producers();
    push_all(&mut world, &[0, 1, 2, 0]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.next_producer, 2);
}

#[test]
fn a_forgotten_producer_is_told_at_once_about_a_batch_of_unknown_fate() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Break(1));
    world.model.forget_producers();
    push_all(&mut world, &[0]);
    world.settle_down();
    world.check(true);
    let error = world.settled[0].outcome.as_ref().expect_err("not known");
    assert!(
        matches!(error, SendError::Refused { error, .. } if error.is(reason::PRODUCER_UNKNOWN))
    );
    assert!(error.may_have_applied());
    assert_eq!(world.model.logs[&0], [0, 1]);
}

#[test]
fn a_batch_that_came_back_is_not_sent_past_those_in_flight_behind_it() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0]);
    for step in [
        Step::Pump,
        Step::Refuse,
        Step::Answer,
        Step::Wait(100),
        Step::Pump,
    ] {
        world.take(&step);
    }
    assert_eq!(world.inbox.len(), 1, "only the second is out");
    for step in [Step::Process, Step::Answer, Step::Pump] {
        world.take(&step);
    }
    assert_eq!(world.inbox.len(), 2, "both are sent again");
    world.settle_down();
    world.check(true);
}

#[test]
fn sequences_go_on_from_the_lowest_batch_that_was_not_taken() {
    let mut world = World::new(CONFIG);
    world.push(0, false);
    world.push(0, true);
    world.take(&Step::Pump);
    world.take(&Step::Refuse);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [0]);
    assert_eq!(world.model.next_producer, 1);
}

#[test]
fn before_a_new_identity_only_batches_of_unknown_fate_go_out() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(4_000));
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(1_000));
    world.take(&Step::Break(0));
    push_all(&mut world, &[0]);
    world.take(&Step::Wait(1_000));
    world.take(&Step::Pump);
    let out: Vec<_> = world
        .inbox
        .iter()
        .map(|request| parse(&request.batches[0]).0)
        .collect();
    assert_eq!(out, [1]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [1, 2]);
}

#[test]
fn a_batch_that_keeps_coming_back_is_not_left_behind_by_more_than_the_broker_remembers() {
    let five = PipelineConfig {
        in_flight: 5,
        in_flight_per_partition: 5,
        ..CONFIG
    };
    let mut world = World::new(five);
    push_all(&mut world, &[0; 12]);
    world.take(&Step::Pump);
    world.take(&Step::Break(1));
    world.take(&Step::Wait(100));
    world.take(&Step::Pump);
    world.take(&Step::Refuse);
    for step in [Step::Process, Step::Answer].iter().cycle().take(10) {
        world.take(step);
    }
    assert_eq!(
        world.model.logs[&0],
        [0, 1, 2, 3, 4],
        "the first was there, the others are now"
    );
    world.take(&Step::Wait(200));
    world.take(&Step::Pump);
    let out: Vec<_> = world
        .inbox
        .iter()
        .map(|request| parse(&request.batches[0]).0)
        .collect();
    assert_eq!(out, [0]);
    world.settle_down();
    world.check(true);
    assert!(world.settled.iter().all(|settled| settled.outcome.is_ok()));
}
