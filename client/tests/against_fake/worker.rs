//! Workers: what a handler's end makes of its record, and what is done around handlers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use varvelog_client::proto::{Failure, FailureAction, GroupMode, OnFailure};
use varvelog_client::{HandlerError, Message, Worker, WorkerBuilder, WorkerSummary};

use crate::fake::{Chunk, Fake};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// So many deliveries of so many records each, held for 30 s.
pub(crate) fn with_deliveries(deliveries: i64, records: i64) -> Fake {
    let fake = Fake::start(1);
    for delivery in 0..deliveries {
        let (first, last) = (delivery * records, (delivery + 1) * records - 1);
        let values: Vec<_> = (first..=last).map(|value| value.to_string()).collect();
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        fake.preload(0, &values);
        let chunk = Chunk {
            partition: 0,
            first,
            last,
            attempt: 1,
        };
        fake.state().groups.pending.push_back(chunk);
    }
    fake.state().groups.hold = Duration::from_secs(30);
    fake
}

pub(crate) fn worker(fake: &Fake) -> WorkerBuilder {
    Worker::builder(&fake.connection(), "g").topics(["t"])
}

/// Offsets in the order in which their handlers began, and how many are at work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    begun: Arc<Mutex<Vec<(i64, u32)>>>,
    running: Arc<AtomicUsize>,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Log {
    pub(crate) fn begin(&self, message: &Message) {
        let entry = (message.offset(), message.attempt());
        self.begun.lock().expect("no panic").push(entry);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn begun(&self) -> Vec<(i64, u32)> {
        self.begun.lock().expect("no panic").clone()
    }

    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.begun().iter().map(|(offset, _)| *offset).collect()
    }
}

/// A handler that takes so long and succeeds.
pub(crate) fn takes(
    log: &Log,
    time: Duration,
) -> impl Fn(Message) -> futures_util::future::BoxFuture<'static, Result<(), HandlerError>> + use<>
{
    let log = log.clone();
    move |message| {
        let log = log.clone();
        Box::pin(async move {
            log.begin(&message);
            tokio::time::sleep(time).await;
            log.end();
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_everything_about_its_record() {
    let fake = with_deliveries(1, 2);
    let (seen, mut messages) = tokio::sync::mpsc::channel(2);
    let worker = worker(&fake).limit(2).handler(move |message| {
        let seen = seen.clone();
        async move {
            seen.send(message).await?;
            Ok(())
        }
    });
    let summary = worker.run().await.expect("worked");
    assert_eq!(summary.done, 2);
    messages.recv().await.expect("the first");
    let message = messages.recv().await.expect("the second");
    assert_eq!(
        (message.topic(), message.partition(), message.offset()),
        ("t", 0, 1)
    );
    assert_eq!((message.key(), message.value()), (None, Some(&b"1"[..])));
    assert_eq!((message.attempt(), message.fence()), (1, 3));
    assert_eq!(message.message_id(), "t/0/1");
    assert!(message.headers().is_empty() && message.header("x").is_none());
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_are_allowed_and_twice_as_many_records_are_held() {
    let fake = with_deliveries(40, 1);
    let log = Log::default();
    let worker = worker(&fake).concurrency(4).max_records(1).limit(40);
    let worker = worker.handler(takes(&log, SECOND));
    assert_eq!(worker.run().await.expect("worked").done, 40);
    assert_eq!(log.most.load(Ordering::SeqCst), 4);
    assert_eq!(fake.state().groups.most_held, 8);
}

#[tokio::test(start_paused = true)]
async fn one_slow_record_of_each_delivery_does_not_starve_the_handlers() {
    // Every first record takes an hour; the others of its delivery are quick.
    let fake = with_deliveries(12, 2);
    let log = Log::default();
    let own = log.clone();
    let worker = worker(&fake).concurrency(8).max_records(2);
    let worker = worker.handler(move |message| {
        let log = own.clone();
        async move {
            log.begin(&message);
            let slow = message.offset() % 2 == 0;
            tokio::time::sleep(if slow { SECOND * 3_600 } else { SECOND }).await;
            log.end();
            Ok(())
        }
    });
    let running = log.running.clone();
    let all_busy = async move {
        while running.load(Ordering::SeqCst) < 8 {
            tokio::time::sleep(SECOND).await;
        }
        tokio::time::sleep(SECOND * 30).await;
    };
    worker.run_until(all_busy).await.expect("worked");
    let slow = log
        .offsets()
        .iter()
        .filter(|offset| *offset % 2 == 0)
        .count();
    assert_eq!(slow, 8, "all handlers came to be at work");
}

#[tokio::test(start_paused = true)]
async fn handlers_that_end_in_any_order_are_settled_with_one_ack() {
    let fake = with_deliveries(1, 4);
    let worker = worker(&fake)
        .concurrency(4)
        .limit(4)
        .handler(|message| async move {
            let turn = u32::try_from(10 - message.offset()).expect("small");
            tokio::time::sleep(SECOND * turn).await;
            Ok(())
        });
    assert_eq!(worker.run().await.expect("worked").done, 4);
    let groups = &fake.state().groups;
    assert_eq!((groups.acks, groups.done.len()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn each_record_of_a_delivery_becomes_what_its_handler_said() {
    let fake = with_deliveries(1, 6);
    let worker = worker(&fake)
        .concurrency(6)
        .limit(6)
        .handler(|message| async move {
            match message.offset() {
                0 => Ok(()),
                1 => Err(HandlerError::transient("busy", "later").retry_after(SECOND * 9)),
                2 => Err(HandlerError::permanent("bad", "never").stack("at shop")),
                3 => Err(HandlerError::by_code("E17", "odd")),
                4 => Err(HandlerError::released()),
                _ => {
                    "x".parse::<u8>()?;
                    Ok(())
                }
            }
        });
    let summary = worker.run().await.expect("worked");
    let wanted = WorkerSummary {
        done: 1,
        retried: 3,
        dead_lettered: 1,
        released: 1,
        ..Default::default()
    };
    assert_eq!(summary, wanted);
    let state = fake.state();
    assert_eq!(state.groups.acks, 1);
    let told: Vec<_> = state.groups.failures.iter().map(action).collect();
    assert_eq!(
        told,
        [
            (1, FailureAction::Retry, "busy", "later"),
            (2, FailureAction::DeadLetter, "bad", "never"),
            (3, FailureAction::Unspecified, "E17", "odd"),
            (4, FailureAction::Release, "", ""),
            (
                5,
                FailureAction::Retry,
                std::any::type_name::<std::num::ParseIntError>(),
                "invalid digit found in string"
            ),
        ]
    );
    let failures = &state.groups.failures;
    assert_eq!(failures[0].retry_after.map(|after| after.seconds), Some(9));
    assert_eq!(failures[1].error_stack, "at shop");
}

fn action(failure: &Failure) -> (i64, FailureAction, &str, &str) {
    let (code, message) = (&failure.error_code, &failure.error_message);
    (failure.offset, failure.action(), code, message)
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_record_alone() {
    let fake = with_deliveries(1, 3);
    let worker = worker(&fake)
        .concurrency(3)
        .limit(4)
        .handler(|message| async move {
            tokio::task::yield_now().await;
            assert!(
                message.offset() != 1 || message.attempt() == 2,
                "no seat left"
            );
            Ok(())
        });
    let summary = worker.run().await.expect("worked");
    assert_eq!((summary.done, summary.retried), (3, 1));
    let state = fake.state();
    let told: Vec<_> = state.groups.failures.iter().map(action).collect();
    assert_eq!(told, [(1, FailureAction::Retry, "panic", "no seat left")]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_holds_its_partition_is_worked_at_in_order_up_to_a_failure() {
    let fake = with_deliveries(1, 4);
    fake.state().groups.config.set_on_failure(OnFailure::Hold);
    let log = Log::default();
    let own = log.clone();
    let worker = worker(&fake).concurrency(4).max_records(4).limit(5);
    let worker = worker.handler(move |message| {
        own.begin(&message);
        let own = own.clone();
        async move {
            tokio::time::sleep(SECOND).await;
            own.end();
            if (message.offset(), message.attempt()) == (1, 1) {
                return Err(HandlerError::transient("busy", "later"));
            }
            Ok(())
        }
    });
    let summary = worker.run().await.expect("worked");
    assert_eq!(log.begun()[..2], [(0, 1), (1, 1)]);
    assert_eq!(log.most.load(Ordering::SeqCst), 1);
    assert_eq!((summary.done, summary.retried, summary.released), (4, 1, 2));
    let mut rest = log.begun()[2..].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, [(1, 2), (2, 1), (3, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_holds_keys_is_worked_at_side_by_side() {
    let fake = with_deliveries(1, 4);
    fake.state().groups.config.set_on_failure(OnFailure::Hold);
    fake.state().groups.config.set_mode(GroupMode::Queue);
    let log = Log::default();
    let worker = worker(&fake).concurrency(4).max_records(4).limit(4);
    let summary = worker
        .handler(takes(&log, SECOND))
        .run()
        .await
        .expect("worked");
    assert_eq!((summary.done, log.most.load(Ordering::SeqCst)), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn an_ordered_worker_takes_one_record_of_a_partition_at_a_time() {
    let fake = with_deliveries(3, 2);
    let log = Log::default();
    let worker = worker(&fake)
        .concurrency(4)
        .max_records(2)
        .ordered(true)
        .limit(6);
    let summary = worker
        .handler(takes(&log, SECOND))
        .run()
        .await
        .expect("worked");
    assert_eq!((summary.done, log.most.load(Ordering::SeqCst)), (6, 1));
    assert_eq!(log.offsets(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_over_a_server_stream_does_all_the_same() {
    let fake = with_deliveries(20, 1);
    fake.state().no_sessions = true;
    let log = Log::default();
    let worker = worker(&fake).concurrency(2).max_records(1).limit(20);
    let summary = worker
        .handler(takes(&log, SECOND * 45))
        .run()
        .await
        .expect("worked");
    assert_eq!(summary.done, 20);
    assert_eq!(log.begun().len(), 20, "held by calls of their own");
}
