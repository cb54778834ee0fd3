//! Members of a group: deliveries, settlements, broken connections, the end.

use std::collections::BTreeSet;
use std::time::Duration;

use tonic::Code;
use varvelog_client::error::reason;
use varvelog_client::proto::{ConflictReason, GroupEvent, TopicPartition};
use varvelog_client::{ConsumeError, Delivery, GroupConsumer, GroupConsumerConfig, Settlement};

use crate::fake::{Chunk, Fake};

/// Partition 0 holds so many batches of two records, each of which will be a delivery.
pub(crate) fn with_batches(batches: i64) -> Fake {
    let fake = Fake::start(1);
    for batch in 0..batches {
        let (first, last) = (batch * 2, batch * 2 + 1);
        fake.preload(0, &[&first.to_string(), &last.to_string()]);
        let chunk = Chunk {
            partition: 0,
            first,
            last,
            attempt: 1,
        };
        fake.state().groups.pending.push_back(chunk);
    }
    fake
}

pub(crate) async fn open(fake: &Fake, config: GroupConsumerConfig) -> GroupConsumer {
    config
        .topics(["t"])
        .open(&fake.connection())
        .await
        .expect("joined")
}

pub(crate) fn config() -> GroupConsumerConfig {
    GroupConsumer::config("g")
}

pub(crate) async fn next(consumer: &mut GroupConsumer) -> Delivery {
    consumer
        .next()
        .await
        .expect("not ended")
        .expect("a delivery")
}

pub(crate) fn offsets(delivery: &Delivery) -> Vec<i64> {
    delivery
        .records()
        .iter()
        .map(|record| record.offset)
        .collect()
}

pub(crate) fn done(fake: &Fake) -> usize {
    fake.state().groups.done.len()
}

#[tokio::test(start_paused = true)]
async fn everything_is_delivered_once_and_acknowledged() {
    let fake = with_batches(10);
    let mut consumer = open(&fake, config()).await;
    for batch in 0..10 {
        let delivery = next(&mut consumer).await;
        assert_eq!(offsets(&delivery), [batch * 2, batch * 2 + 1]);
        assert_eq!((delivery.topic(), delivery.partition()), ("t", 0));
        assert_eq!((delivery.lag_records(), delivery.fence()), (5, 3));
        let record = &delivery.records()[0];
        assert_eq!(
            record.value.as_deref(),
            Some((batch * 2).to_string().as_bytes())
        );
        assert_eq!(record.attempt, 1);
        let settled = delivery.ack().await.expect("settled");
        assert_eq!((settled.done, settled.is_complete()), (2, true));
    }
    let membership = consumer.membership();
    assert_eq!(
        (membership.member_id.as_str(), membership.generation),
        ("member-1", 7)
    );
    assert_eq!(membership.assigned, [("t".to_owned(), 0)]);
    consumer.close().await.expect("left");
    assert_eq!(done(&fake), 20);
    assert_eq!(fake.state().groups.left, ["member-1"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_deliveries_are_in_hand_than_credit_allows() {
    let fake = with_batches(30);
    let mut consumer = open(&fake, config().credit(3)).await;
    fake.until(|state| state.groups.held() == 3).await;
    for _ in 0..30 {
        next(&mut consumer).await.ack().await.expect("settled");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fake.state().groups.most_held, 3);
    assert_eq!(done(&fake), 60);
}

#[tokio::test(start_paused = true)]
async fn failures_come_again_as_records_or_go_to_the_dead_letters() {
    let fake = with_batches(2);
    let mut consumer = open(&fake, config()).await;
    let settlement = Settlement::done()
        .retry(0, "timeout", "slow")
        .dead_letter(1, "bad", "worse");
    let settled = next(&mut consumer)
        .await
        .settle(settlement)
        .await
        .expect("settled");
    assert_eq!(
        (settled.done, settled.retried, settled.dead_lettered),
        (0, 1, 1)
    );
    next(&mut consumer).await.ack().await.expect("settled");
    let again = next(&mut consumer).await;
    assert_eq!((offsets(&again), again.records()[0].attempt), (vec![0], 2));
    assert_eq!(again.records()[0].message_id, "t/0/0");
    again.ack().await.expect("settled");
    assert_eq!(fake.state().groups.dead, [(0, 1)]);
    assert_eq!(done(&fake), 3);
}

#[tokio::test(start_paused = true)]
async fn released_records_come_again_uncounted() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let settled = next(&mut consumer).await.release().await.expect("settled");
    assert_eq!(settled.released, 2);
    for offset in 0..2 {
        let delivery = next(&mut consumer).await;
        assert_eq!(
            (offsets(&delivery), delivery.records()[0].attempt),
            (vec![offset], 1)
        );
        delivery.ack().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_comes_back_as_itself_and_settles_what_it_had() {
    let fake = with_batches(8);
    let mut consumer = open(&fake, config().credit(4)).await;
    let before = next(&mut consumer).await;
    fake.until(|state| state.groups.held() == 4).await;
    fake.cut();
    fake.until(|state| state.groups.joins.len() == 2).await;
    assert_eq!(fake.state().groups.joins, ["", "member-1"]);
    assert!(before.ack().await.expect("settled").is_complete());
    drop(before);
    for batch in 1..8 {
        let delivery = next(&mut consumer).await;
        assert_eq!(
            offsets(&delivery)[0],
            batch * 2,
            "nothing buffered was lost"
        );
        assert!(delivery.ack().await.expect("settled").is_complete());
    }
    assert_eq!(done(&fake), 16);
    assert_eq!(consumer.membership().member_id, "member-1");
}

#[tokio::test(start_paused = true)]
async fn an_ack_is_made_by_itself_while_there_is_no_session() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    fake.set_down(true);
    let ack = tokio::spawn(async move { delivery.ack().await });
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(done(&fake), 0);
    fake.set_down(false);
    let settled = ack.await.expect("no panic").expect("settled in the end");
    assert_eq!(settled.done, 2);
}

#[tokio::test(start_paused = true)]
async fn an_ack_whose_answer_was_lost_is_repeated() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    fake.state().groups.cut_after_ack = true;
    let settled = delivery.ack().await.expect("settled");
    assert_eq!((settled.done, settled.already_settled), (0, 2));
    assert!(settled.is_complete());
    assert_eq!(fake.state().groups.acks, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_shows_as_conflicts() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    fake.state().groups.expire_leases();
    let settled = delivery.ack().await.expect("answered");
    assert!(!settled.is_complete());
    let conflicts: Vec<_> = settled
        .conflicts
        .iter()
        .map(|c| (c.offset, c.reason))
        .collect();
    let lost = ConflictReason::LeaseLost;
    assert_eq!(conflicts, [(0, lost), (1, lost)]);
    let error = delivery.extend(None).await.expect_err("lost");
    assert!(error.is(reason::LEASE_LOST) && !error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_extended_through_the_session() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let delivery = next(&mut consumer).await;
    let extended = delivery
        .extend(Some(Duration::from_mins(1)))
        .await
        .expect("held");
    assert_eq!((extended.ack_deadline_ms, extended.capped), (99, false));
}

#[tokio::test(start_paused = true)]
async fn a_membership_that_lapsed_drops_what_was_buffered_and_loses_nothing() {
    let fake = with_batches(6);
    let mut consumer = open(&fake, config().credit(3)).await;
    fake.until(|state| state.groups.held() == 3).await;
    fake.set_down(true);
    // The session timeout passes: the broker takes everything back.
    fake.state().groups.leave("member-1");
    fake.set_down(false);
    fake.until(|state| state.groups.joins.len() == 2).await;
    fake.until(|state| state.groups.members.contains("member-2"))
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let delivery = next(&mut consumer).await;
        assert!(
            seen.insert(offsets(&delivery)),
            "given once by the membership in force"
        );
        assert!(delivery.ack().await.expect("settled").is_complete());
    }
    assert_eq!(done(&fake), 12);
    assert_eq!(consumer.membership().member_id, "member-2");
}

#[tokio::test(start_paused = true)]
async fn closing_releases_what_is_buffered_and_unsettled_uncounted() {
    let fake = with_batches(6);
    let mut consumer = open(&fake, config().credit(3)).await;
    next(&mut consumer).await.ack().await.expect("settled");
    let in_hand = next(&mut consumer).await;
    fake.until(|state| state.groups.held() == 3).await;
    consumer.close().await.expect("left");
    {
        let groups = &fake.state().groups;
        assert_eq!(groups.held(), 0);
        assert!(groups.pending.iter().all(|chunk| chunk.attempt == 1));
        assert_eq!(groups.pending.len(), 5);
    }
    let settled = in_hand.ack().await.expect("answered by a call of its own");
    assert_eq!(settled.conflicts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_consumer_ends_its_membership_too() {
    let fake = with_batches(3);
    let consumer = open(&fake, config()).await;
    fake.until(|state| state.groups.held() == 3).await;
    drop(consumer);
    fake.until(|state| state.groups.left == ["member-1"]).await;
    assert_eq!(fake.state().groups.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_member_is_told_and_ends() {
    let fake = with_batches(0);
    let mut consumer = open(&fake, config()).await;
    fake.state().groups.end_with = Some(Code::Aborted);
    fake.note_change();
    let error = consumer
        .next()
        .await
        .expect("an error")
        .expect_err("fenced");
    assert!(matches!(&error, ConsumeError::Refused(error) if error.is(reason::MEMBER_FENCED)));
    assert!(consumer.next().await.is_none());
    consumer.close().await.expect("nothing left to do");
}

#[tokio::test(start_paused = true)]
async fn a_refused_join_fails_at_once_and_an_unreachable_broker_after_a_while() {
    let fake = with_batches(0);
    fake.state().groups.end_with = Some(Code::PermissionDenied);
    let error = config()
        .open(&fake.connection())
        .await
        .expect_err("refused");
    assert_eq!(error.code(), Code::PermissionDenied);

    fake.set_down(true);
    let begin = tokio::time::Instant::now();
    let timeout = Duration::from_secs(10);
    let config = config().open_timeout(timeout);
    let error = config
        .open(&fake.connection())
        .await
        .expect_err("unreachable");
    assert_eq!(error.code(), Code::Unavailable);
    assert!(begin.elapsed() > timeout / 2 && begin.elapsed() <= timeout);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_gives_up_when_it_was_told_to() {
    let fake = with_batches(0);
    let patience = Duration::from_secs(30);
    let mut consumer = open(&fake, config().reconnect_for(patience)).await;
    fake.set_down(true);
    let error = consumer
        .next()
        .await
        .expect("an error")
        .expect_err("gave up");
    assert!(
        matches!(error, ConsumeError::GaveUp { after, .. } if after == patience),
        "{error}"
    );
    assert!(consumer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn where_sessions_are_refused_a_server_stream_does() {
    let fake = with_batches(9);
    fake.state().no_sessions = true;
    let mut consumer = open(&fake, config().credit(20)).await;
    for batch in 0..9 {
        let delivery = next(&mut consumer).await;
        assert_eq!(offsets(&delivery)[0], batch * 2);
        assert!(delivery.ack().await.expect("settled").is_complete());
    }
    consumer.close().await.expect("left by a call of its own");
    assert_eq!(fake.state().groups.left, ["member-1"]);
    assert_eq!(done(&fake), 18);
}

#[tokio::test(start_paused = true)]
async fn at_most_once_needs_no_acks() {
    let fake = with_batches(3);
    let mut consumer = open(&fake, config().auto_ack(true)).await;
    for _ in 0..3 {
        let delivery = next(&mut consumer).await;
        assert!(delivery.ack_token().is_empty());
        assert!(delivery.ack().await.expect("nothing to do").is_complete());
    }
    assert_eq!((done(&fake), fake.state().groups.acks), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_stream_is_read_only_as_fast_as_it_is_worked_through() {
    let fake = with_batches(12);
    fake.state().no_sessions = true;
    let mut consumer = open(&fake, config().auto_ack(true).credit(2)).await;
    for batch in 0..12 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(offsets(&next(&mut consumer).await)[0], batch * 2);
    }
    assert_eq!(fake.state().groups.joins.len(), 1, "one stream did it");
}

#[tokio::test(start_paused = true)]
async fn records_that_were_taken_out_are_released_all_the_same() {
    let fake = with_batches(1);
    let mut consumer = open(&fake, config()).await;
    let mut delivery = next(&mut consumer).await;
    assert_eq!(delivery.take_records().len(), 2);
    let settled = delivery.release().await.expect("settled");
    assert_eq!((settled.released, settled.done), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_buffered_of_a_partition_that_is_taken_away_is_worked_through_all_the_same() {
    let fake = with_batches(3);
    let mut consumer = open(&fake, config().credit(3)).await;
    fake.until(|state| state.groups.held() == 3).await;
    fake.state().groups.announce = Some(GroupEvent {
        member_id: "member-1".to_owned(),
        generation: 8,
        assigned: Vec::new(),
        revoked: vec![TopicPartition {
            topic: "t".to_owned(),
            partition: 0,
        }],
    });
    fake.note_change();
    let mut membership = consumer.watch_membership();
    membership
        .wait_for(|membership| membership.generation == 8)
        .await
        .expect("told");
    // They are held by this member until it settles them, and the next owner waits for that.
    for batch in 0..3 {
        let delivery = next(&mut consumer).await;
        assert_eq!(offsets(&delivery)[0], batch * 2);
        delivery.ack().await.expect("settled");
    }
    assert_eq!(done(&fake), 6);
}
