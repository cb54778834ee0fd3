//! What a replay cannot be, and what it passes over.

use varvelog_proto::v1;

use super::dead_letters::{die, with_dead};
use super::failures::{failure, settle, with_group};
use super::groups::{delivery, join, member};
use super::replays::{QUEUE, replay_of, start};
use super::{reason, refused};

type Set = fn(&mut v1::ReplayDeadLettersRequest);

#[tokio::test]
async fn what_a_replay_cannot_be_is_refused_with_the_field() {
    let broker = with_dead(&["E1"]).await;
    let wrong: [(&str, Set); 8] = [
        ("max_per_second", |it| it.max_per_second = 0.5),
        ("max_per_second", |it| it.max_per_second = 10_001.0),
        ("max_per_second", |it| it.max_per_second = f64::NAN),
        ("limit", |it| it.limit = -1),
        ("canary", |it| it.canary = -1),
        ("canary", |it| it.canary = 10_001),
        ("note", |it| it.note = "x".repeat(513)),
        ("request_id", |it| it.request_id = "x".repeat(129)),
    ];
    for (field, set) in wrong {
        let mut request = replay_of();
        set(&mut request);
        let refused = refused(broker.dead_letters().replay_dead_letters(request).await);
        assert_eq!(refused.1, "INVALID_FIELD", "{field}");
        assert_eq!(refused.2["field"], field);
    }
    for (target, expected) in [("nowhere", "TOPIC_NOT_FOUND"), (QUEUE, "DERIVED_TOPIC")] {
        let request = v1::ReplayDeadLettersRequest {
            target_topic: target.into(),
            ..replay_of()
        };
        let refused = broker.dead_letters().replay_dead_letters(request).await;
        assert_eq!(reason(refused), expected);
    }
}

#[tokio::test]
async fn a_record_is_replayed_three_times_at_most_without_force() {
    let broker = with_dead(&["E1"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    for round in 1..=4 {
        let force = round == 4;
        if force {
            let spent = start(&broker, replay_of()).await;
            assert_eq!((spent.matched, spent.skipped), (0, 1));
        }
        let request = v1::ReplayDeadLettersRequest {
            force,
            ..replay_of()
        };
        assert_eq!(start(&broker, request).await.matched, 1, "round {round}");
        let given = delivery(&mut stream).await;
        let dead = failure(given.records[0].offset, v1::FailureAction::DeadLetter);
        settle(&broker, &given, vec![dead]).await;
    }
}

#[tokio::test]
async fn a_group_that_holds_order_is_not_overtaken_unawares() {
    let config = v1::GroupConfig {
        on_failure: v1::OnFailure::Hold.into(),
        ..Default::default()
    };
    let broker = with_group(config, &[]).await;
    die(&broker, &["E1"]).await;
    let refused = broker.dead_letters().replay_dead_letters(replay_of()).await;
    assert_eq!(reason(refused), "WOULD_REORDER");
    let accepted = v1::ReplayDeadLettersRequest {
        accept_reordering: true,
        ..replay_of()
    };
    assert_eq!(start(&broker, accepted).await.matched, 1);
}
