//! What a worker does so that records stay its own, and when they do not.

use varvelog_client::WorkerSummary;

use crate::fake::Chunk;
use crate::worker::{Log, SECOND, takes, with_deliveries, worker};

#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_record_and_those_that_wait_behind_it() {
    let fake = with_deliveries(2, 1);
    let log = Log::default();
    let worker = worker(&fake).limit(2).handler(takes(&log, SECOND * 300));
    let summary = worker.run().await.expect("worked");
    assert_eq!(
        summary,
        WorkerSummary {
            done: 2,
            ..Default::default()
        }
    );
    assert_eq!(log.begun(), [(0, 1), (1, 1)], "given out once each");
    // Every 15 s: 5 min of the first and 10 min of the second.
    let extends = fake.state().groups.extends.len();
    assert!((55..=62).contains(&extends), "{extends}");
}

#[tokio::test(start_paused = true)]
async fn the_hold_of_the_group_is_kept_to_where_none_is_asked_for() {
    let fake = with_deliveries(1, 1);
    fake.state().groups.hold = SECOND * 8;
    fake.state().groups.config.visibility_timeout = Some(prost_types::Duration {
        seconds: 8,
        nanos: 0,
    });
    let log = Log::default();
    let worker = worker(&fake).limit(1).handler(takes(&log, SECOND * 60));
    assert_eq!(worker.run().await.expect("worked").done, 1);
    assert_eq!(log.begun(), [(0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_costs_nothing() {
    let fake = with_deliveries(4, 1);
    let log = Log::default();
    let worker = worker(&fake).concurrency(2).max_records(1).limit(4);
    let working = tokio::spawn(worker.handler(takes(&log, SECOND * 40)).run());
    fake.until(|state| state.groups.held() == 4).await;
    fake.set_down(true);
    tokio::time::sleep(SECOND * 5).await;
    fake.set_down(false);
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!(
        summary,
        WorkerSummary {
            done: 4,
            ..Default::default()
        }
    );
    assert_eq!(log.begun().len(), 4, "given out once each");
    assert_eq!(fake.state().groups.joins, ["", "member-1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_begun_and_the_worker_goes_on() {
    let fake = with_deliveries(2, 1);
    let log = Log::default();
    let worker = worker(&fake).limit(3).handler(takes(&log, SECOND * 40));
    let working = tokio::spawn(worker.run());
    fake.until(|state| state.groups.held() == 2).await;
    tokio::time::sleep(SECOND).await;
    // Another was given both; then there is more to do.
    fake.state().groups.expire_leases();
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(
        log.offsets(),
        [0],
        "the one that waited was lost at its extension"
    );
    for offset in 0..2 {
        let chunk = Chunk {
            partition: 0,
            first: offset,
            last: offset,
            attempt: 2,
        };
        fake.state().groups.pending.push_back(chunk);
    }
    fake.note_change();
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!((summary.done, summary.conflicts), (2, 2));
    assert_eq!(log.begun(), [(0, 1), (0, 2), (1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_held_is_not_begun() {
    let fake = with_deliveries(2, 1);
    let log = Log::default();
    let worker = worker(&fake).limit(3).ack_retry(SECOND);
    let working = tokio::spawn(worker.handler(takes(&log, SECOND * 40)).run());
    fake.until(|state| state.groups.held() == 2).await;
    tokio::time::sleep(SECOND).await;
    fake.set_down(true);
    tokio::time::sleep(SECOND * 50).await;
    assert_eq!(
        log.offsets(),
        [0],
        "the other was held no longer when a handler was free"
    );
    fake.set_down(false);
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!(log.begun(), [(0, 1), (0, 2), (1, 2)], "both came again");
    assert_eq!(summary.done, 2);
    assert_eq!(summary.unsettled, 2, "the broker could not be told");
}

#[tokio::test(start_paused = true)]
async fn a_longest_hold_is_not_extended_any_further() {
    let fake = with_deliveries(1, 1);
    let end = tokio::time::Instant::now() + SECOND * 60;
    fake.state().groups.hold_until = Some(end);
    let log = Log::default();
    let worker = worker(&fake).limit(2).handler(takes(&log, SECOND * 100));
    let working = tokio::spawn(worker.run());
    fake.until(|state| state.groups.extends.len() == 3).await;
    tokio::time::sleep_until(end).await;
    fake.state().groups.hold_until = None;
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!(
        log.begun(),
        [(0, 1), (0, 2)],
        "its time was up, so it came again"
    );
    assert_eq!((summary.done, summary.conflicts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_membership_is_taken_up_anew_without_what_it_had() {
    let fake = with_deliveries(2, 1);
    let log = Log::default();
    let worker = worker(&fake).limit(3).handler(takes(&log, SECOND * 5));
    let working = tokio::spawn(worker.run());
    fake.until(|state| state.groups.held() == 2).await;
    fake.set_down(true);
    fake.state().groups.leave("member-1");
    fake.set_down(false);
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!((summary.done, summary.conflicts), (2, 2));
    assert_eq!(
        log.offsets(),
        [0, 0, 1],
        "the one that waited was begun once only"
    );
}
