//! Settling a delivery: by parts, record by record, and what is left when its holder goes.

use varvelog_client::proto::{ConflictReason, FailureAction, GroupMode};
use varvelog_client::{Failure, Settlement};

use crate::consume::{config, done, next, offsets, open, with_batches};
use crate::fake::{Chunk, Fake};

/// One delivery of five records.
fn with_five() -> Fake {
    let fake = Fake::start(1);
    fake.preload(0, &["0", "1", "2", "3", "4"]);
    let chunk = Chunk {
        partition: 0,
        first: 0,
        last: 4,
        attempt: 1,
    };
    fake.state().groups.pending.push_back(chunk);
    fake
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_settled_in_parts() {
    let fake = with_five();
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    assert_eq!(delivery.ack_up_to(1).await.expect("settled").done, 2);
    let failed = delivery.fail(3, Failure::transient("busy", "later")).await;
    let failed = failed.expect("settled");
    assert_eq!((failed.done, failed.retried), (1, 1));
    assert_eq!(failed.already_settled, 2, "those of the first part");
    let released = delivery.release().await.expect("settled");
    assert_eq!((released.released, released.done), (1, 0));
    assert_eq!(fake.state().groups.done.len(), 3);
    assert_eq!(fake.state().groups.failures[0].error_code, "busy");
}

#[tokio::test(start_paused = true)]
async fn a_whole_delivery_fails_for_one_reason() {
    let fake = with_five();
    let mut consumer = open(&fake, config()).await;
    let mut delivery = next(&mut consumer).await;
    assert_eq!(delivery.take_records().len(), 5);
    let reason = Failure::permanent("bad", "all of it");
    let settled = delivery.fail_all(reason).await.expect("settled");
    assert_eq!(settled.dead_lettered, 5);
    assert!(settled.is_complete());
    assert_eq!(fake.state().groups.dead.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn one_settlement_says_something_else_of_each_record() {
    let fake = with_five();
    let mut consumer = open(&fake, config()).await;
    let settlement = Settlement::done()
        .fail(0, Failure::by_code("E17", "odd").stack("at shop"))
        .retry(1, "busy", "later")
        .dead_letter(2, "bad", "never")
        .release(3);
    let settled = next(&mut consumer).await.settle(settlement).await;
    let settled = settled.expect("settled");
    assert_eq!((settled.done, settled.retried), (1, 2));
    assert_eq!((settled.dead_lettered, settled.released), (1, 1));
    let actions: Vec<_> = fake
        .state()
        .groups
        .failures
        .iter()
        .map(|failure| (failure.offset, failure.action()))
        .collect();
    assert_eq!(
        actions,
        [
            (0, FailureAction::Unspecified),
            (1, FailureAction::Retry),
            (2, FailureAction::DeadLetter),
            (3, FailureAction::Release),
        ]
    );
    assert_eq!(fake.state().groups.failures[0].error_stack, "at shop");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_settled_otherwise_is_a_conflict() {
    let fake = with_five();
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    let failed = Settlement::done().retry(0, "busy", "later").up_to(0);
    assert_eq!(delivery.settle(failed).await.expect("settled").retried, 1);
    let settled = delivery.ack().await.expect("settled");
    assert_eq!(settled.done, 4);
    let otherwise = ConflictReason::SettledOtherwise;
    assert_eq!(
        (settled.conflicts[0].offset, settled.conflicts[0].reason),
        (0, otherwise)
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_of_a_queue_has_no_partitions_and_all_the_records() {
    let fake = with_batches(3);
    fake.state().groups.config.set_mode(GroupMode::Queue);
    let mut consumer = open(&fake, config()).await;
    let membership = consumer.membership();
    assert_eq!(
        (membership.member_id.as_str(), membership.assigned.len()),
        ("member-1", 0)
    );
    for batch in 0..3 {
        let delivery = next(&mut consumer).await;
        assert_eq!(offsets(&delivery)[0], batch * 2);
        delivery.ack().await.expect("settled");
    }
    assert_eq!(done(&fake), 6);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_looked_at_is_given_back_uncounted_over_a_server_stream_too() {
    let fake = with_batches(3);
    fake.state().no_sessions = true;
    let consumer = open(&fake, config()).await;
    fake.until(|state| state.groups.held() == 3).await;
    drop(consumer);
    fake.until(|state| state.groups.left == ["member-1"]).await;
    let groups = &fake.state().groups;
    assert_eq!((groups.held(), groups.pending.len()), (0, 3));
    assert!(groups.pending.iter().all(|chunk| chunk.attempt == 1));
}
