//! How a worker ends: by being told to, by its limit, by the broker, by being dropped.

use tokio::sync::{oneshot, watch};
use varvelog_client::ConsumeError;

use crate::worker::{Log, SECOND, takes, with_deliveries, worker};

#[tokio::test(start_paused = true)]
async fn at_shutdown_what_runs_is_finished_and_the_rest_given_back_uncounted() {
    let fake = with_deliveries(6, 2);
    let log = Log::default();
    let worker = worker(&fake).concurrency(2).max_records(2).buffer(6);
    let worker = worker.handler(takes(&log, SECOND * 10));
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    fake.until(|state| state.groups.held() == 3).await;
    tokio::time::sleep(SECOND).await;
    stop.send(()).expect("it works");
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!((summary.done, summary.released), (2, 4));
    assert_eq!(log.offsets(), [0, 1]);
    let groups = &fake.state().groups;
    assert_eq!((groups.done.len(), groups.held()), (2, 0));
    let given_back: i64 = groups.pending.iter().map(|c| c.last - c.first + 1).sum();
    assert_eq!(given_back, 10);
    assert!(groups.pending.iter().all(|chunk| chunk.attempt == 1));
    assert_eq!(groups.left, ["member-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_end_is_aborted_and_its_record_given_back() {
    let fake = with_deliveries(1, 2);
    let log = Log::default();
    let worker = worker(&fake).concurrency(2).max_records(2);
    let worker = worker.drain_timeout(SECOND * 20).handler({
        let log = log.clone();
        move |message| {
            log.begin(&message);
            async move {
                if message.offset() == 0 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        }
    });
    let begin = tokio::time::Instant::now();
    let working = tokio::spawn(worker.run_until(tokio::time::sleep(SECOND)));
    let summary = working.await.expect("no panic").expect("worked");
    assert_eq!(
        (summary.done, summary.released),
        (1, 1),
        "the other is not repeated"
    );
    assert!(begin.elapsed() < SECOND * 25, "{:?}", begin.elapsed());
    assert_eq!(fake.state().groups.pending.len(), 1);
    assert_eq!(fake.state().groups.pending[0].attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_begun_than_the_limit_says() {
    let fake = with_deliveries(2, 3);
    let log = Log::default();
    let worker = worker(&fake).concurrency(2).max_records(3).limit(4);
    let summary = worker
        .handler(takes(&log, SECOND))
        .run()
        .await
        .expect("worked");
    assert_eq!((summary.done, log.offsets().len()), (4, 4));
    assert_eq!(fake.state().groups.done.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_not_go_on_finishes_what_runs_and_says_why() {
    let fake = with_deliveries(1, 1);
    let log = Log::default();
    let working = tokio::spawn(worker(&fake).handler(takes(&log, SECOND * 5)).run());
    fake.until(|state| state.groups.held() == 1).await;
    tokio::time::sleep(SECOND).await;
    fake.state().groups.end_with = Some(tonic::Code::Aborted);
    fake.note_change();
    let ended = working.await.expect("no panic");
    assert!(matches!(ended, Err(ConsumeError::Refused(_))), "{ended:?}");
    assert_eq!(fake.state().groups.done.len(), 1, "what ran was settled");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_aborts_its_handlers_and_gives_everything_back() {
    let fake = with_deliveries(2, 1);
    let (alive, gone) = watch::channel(());
    let worker = worker(&fake).handler(move |_| {
        let held = alive.clone();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok(())
        }
    });
    let working = tokio::spawn(worker.run());
    fake.until(|state| state.groups.held() == 2).await;
    working.abort();
    fake.until(|state| state.groups.left == ["member-1"]).await;
    tokio::time::timeout(SECOND, async {
        while gone.has_changed().is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the handler is gone");
    assert_eq!(fake.state().groups.held(), 0);
}
