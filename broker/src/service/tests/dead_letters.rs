//! Dead letters as an operator sees them.

use varvelog_proto::v1;

use super::failures::{quick, settle, with_policy};
use super::groups::{delivery, join, member};
use super::{TestBroker, reason, refused, seconds};

/// Records of `orders` die, each of its own code and class.
pub(super) async fn die(broker: &TestBroker, codes: &[&str]) {
    let values: Vec<String> = (0..codes.len())
        .map(|number| format!("v{number}"))
        .collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    broker.produce("orders", &values).await;
    let (mut stream, _) = join(broker, member("email", &[])).await;
    let mut left = codes.iter();
    while left.len() > 0 {
        let given = delivery(&mut stream).await;
        let failures = given.records.iter().zip(left.by_ref());
        let failures = failures.map(|(record, code)| v1::Failure {
            offset: record.offset,
            action: v1::FailureAction::DeadLetter.into(),
            error_code: (*code).to_owned(),
            error_message: format!("{code} in {}", record.offset),
            error_stack: "at main (app.js:1)".into(),
            retry_after: None,
        });
        settle(broker, &given, failures.collect()).await;
    }
}

pub(super) async fn with_dead(codes: &[&str]) -> TestBroker {
    let broker = with_policy(quick(), &[]).await;
    die(&broker, codes).await;
    broker
}

fn all() -> v1::ListDeadLettersRequest {
    v1::ListDeadLettersRequest {
        queue: "orders.email.dlq".into(),
        ..Default::default()
    }
}

pub(super) async fn list(
    broker: &TestBroker,
    request: v1::ListDeadLettersRequest,
) -> v1::ListDeadLettersResponse {
    let listed = broker.dead_letters().list_dead_letters(request).await;
    listed.unwrap().into_inner()
}

pub(super) fn offsets(page: &v1::ListDeadLettersResponse) -> Vec<i64> {
    let ids = page.letters.iter().map(|letter| letter.id.unwrap());
    ids.map(|id| id.offset).collect()
}

async fn filtered(broker: &TestBroker, filter: v1::DeadLetterFilter) -> Vec<i64> {
    let request = v1::ListDeadLettersRequest {
        filter: Some(filter),
        ..all()
    };
    offsets(&list(broker, request).await)
}

pub(super) async fn queues(broker: &TestBroker) -> Vec<v1::DeadLetterQueue> {
    let request = v1::ListDeadLetterQueuesRequest::default();
    let listed = broker.dead_letters().list_dead_letter_queues(request).await;
    listed.unwrap().into_inner().queues
}

async fn stats(broker: &TestBroker) -> v1::GetDeadLetterStatsResponse {
    let request = v1::GetDeadLetterStatsRequest {
        queue: "orders.email".into(),
        ..Default::default()
    };
    let stats = broker.dead_letters().get_dead_letter_stats(request).await;
    stats.unwrap().into_inner()
}

#[tokio::test]
async fn a_queue_is_listed_with_what_is_in_it_even_when_it_is_empty() {
    let broker = with_policy(quick(), &[]).await;
    let empty = &queues(&broker).await[0];
    assert_eq!((empty.name.as_str(), empty.depth), ("orders.email.dlq", 0));
    assert_eq!(empty.oldest_age, Some(seconds(0)));
    assert_eq!(empty.newest_death_time, None);
    die(&broker, &["E1", "E2", "E2"]).await;
    let listed = queues(&broker).await;
    assert_eq!(listed.len(), 1);
    let queue = &listed[0];
    assert_eq!(
        (queue.group.as_str(), queue.source_topic.as_str()),
        ("email", "orders")
    );
    assert_eq!((queue.depth, queue.arrivals_last_hour), (3, 3));
    assert_eq!((queue.claimed, queue.departures_last_hour), (0, 0));
    assert_eq!(queue.top_error_code, "E2");
    assert!(queue.bytes > 0 && queue.newest_death_time.is_some());
}

#[tokio::test]
async fn a_dead_letter_tells_all_that_is_known_of_it() {
    let broker = with_dead(&["E1"]).await;
    let page = list(&broker, all()).await;
    let letter = &page.letters[0];
    let record = letter.record.as_ref().unwrap();
    assert_eq!(record.value.as_deref(), Some(&b"v0"[..]));
    assert!(record.headers.is_empty(), "as produced");
    assert!(!record.message_id.is_empty() && !record.value_omitted);
    assert_eq!(
        (letter.source_topic.as_str(), letter.source_partition),
        ("orders", 0)
    );
    assert_eq!((letter.source_offset, record.offset), (0, 0));
    assert_eq!((letter.group.as_str(), letter.deliveries), ("email", 1));
    assert_eq!(
        (letter.reason.as_str(), letter.error_class.as_str()),
        ("permanent", "permanent")
    );
    assert_eq!(
        (letter.error_code.as_str(), letter.error_message.as_str()),
        ("E1", "E1 in 0")
    );
    assert_eq!(letter.error_fingerprint.len(), 16);
    assert!(letter.error_stack.is_empty(), "only when asked for");
    assert_eq!(letter.attempts.len(), 1);
    assert_eq!(
        (
            letter.attempts[0].attempt,
            letter.attempts[0].error_code.as_str()
        ),
        (1, "E1")
    );
    assert!(letter.first_failure_time.is_some() && letter.death_time.is_some());
    assert!(letter.last_attempt_time.is_some() && !letter.last_member.is_empty());
    let request = v1::ListDeadLettersRequest {
        with_stack: true,
        omit_values: true,
        ..all()
    };
    let letter = list(&broker, request).await.letters.remove(0);
    assert_eq!(letter.error_stack, "at main (app.js:1)");
    let record = letter.record.unwrap();
    assert_eq!(
        (record.value, record.value_omitted, record.value_bytes),
        (None, true, 2)
    );
}

#[tokio::test]
async fn entries_are_listed_by_death_either_way_in_pages_and_nothing_changes() {
    let broker = with_dead(&["E1", "E2", "E3", "E4", "E5"]).await;
    for (newest_first, expected) in [(false, [0, 1, 2, 3, 4]), (true, [4, 3, 2, 1, 0])] {
        let mut seen = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = v1::ListDeadLettersRequest {
                page_size: 2,
                page_token,
                newest_first,
                ..all()
            };
            let page = list(&broker, request).await;
            seen.extend(offsets(&page));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
    assert_eq!(
        queues(&broker).await[0].depth,
        5,
        "looking takes nothing away"
    );
}

fn filter(set: impl FnOnce(&mut v1::DeadLetterFilter)) -> v1::DeadLetterFilter {
    let mut filter = v1::DeadLetterFilter::default();
    set(&mut filter);
    filter
}

pub(super) fn one(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

#[tokio::test]
async fn codes_are_exact_or_a_prefix_and_all_that_is_set_must_hold() {
    let broker = with_dead(&["VAL_1", "VAL_2", "E3"]).await;
    let letters = list(&broker, all()).await.letters;
    let with_code = |code| filter(|it| it.error_codes = one(code));
    assert_eq!(filtered(&broker, with_code("VAL_*")).await, [0, 1]);
    assert_eq!(filtered(&broker, with_code("VAL_")).await, [] as [i64; 0]);
    assert_eq!(filtered(&broker, with_code("E3")).await, [2]);
    let second = &letters[1];
    let id = second.record.as_ref().unwrap().message_id.clone();
    for (index, taking) in [
        filter(|it| it.fingerprints = one(&second.error_fingerprint)),
        filter(|it| it.message_contains = "in 1".into()),
        filter(|it| it.ids = vec![second.id.unwrap()]),
        filter(|it| it.message_ids = one(&id)),
        filter(|it| {
            it.ids = letters.iter().map(|letter| letter.id.unwrap()).collect();
            it.error_codes = one("VAL_*");
            it.message_contains = "_2".into();
        }),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(filtered(&broker, taking).await, [1], "filter {index}");
    }
}

#[tokio::test]
async fn the_other_fields_of_a_filter_take_what_they_say() {
    let broker = with_dead(&["VAL_1", "VAL_2", "E3"]).await;
    let first = list(&broker, all()).await.letters.remove(0);
    let died = first.death_time;
    for (index, (taking, takes)) in [
        (filter(|it| it.reasons = one("permanent")), true),
        (filter(|it| it.reasons = one("max_age")), false),
        (filter(|it| it.error_classes = one("permanent")), true),
        (filter(|it| it.error_classes = one("crash")), false),
        (filter(|it| it.partitions = vec![0]), true),
        (filter(|it| it.partitions = vec![1]), false),
        (filter(|it| it.max_replay_count = Some(0)), true),
        (filter(|it| it.key = Some(Vec::new().into())), false),
        (filter(|it| it.died_after_time = died), true),
        (filter(|it| it.died_before_time = died), false),
    ]
    .into_iter()
    .enumerate()
    {
        let taken = filtered(&broker, taking).await.len();
        assert_eq!(taken, if takes { 3 } else { 0 }, "filter {index}");
    }
}

#[tokio::test]
async fn statistics_count_causes_and_the_trend() {
    let broker = with_dead(&["E1", "E2", "E2", "E2"]).await;
    let stats = stats(&broker).await;
    assert_eq!(stats.queue.as_ref().unwrap().depth, 4);
    let counted = stats
        .errors
        .iter()
        .map(|it| (it.error_code.as_str(), it.count));
    assert_eq!(counted.collect::<Vec<_>>(), [("E2", 3), ("E1", 1)]);
    let first = &stats.errors[0];
    assert_eq!(
        (first.sample_message.as_str(), first.error_class.as_str()),
        ("E2 in 3", "permanent")
    );
    assert_eq!(
        first.sample_id,
        Some(v1::DeadLetterId {
            partition: 0,
            offset: 3
        })
    );
    let letters = list(&broker, all()).await.letters;
    assert_eq!(first.fingerprint, letters[3].error_fingerprint);
    assert_eq!(first.first_seen_time, letters[1].death_time);
    assert_eq!(first.last_seen_time, letters[3].death_time);
    assert_eq!(stats.trend.len(), 60, "a day in 60 steps");
    assert_eq!(
        stats.trend.iter().map(|point| point.arrived).sum::<i64>(),
        4
    );
    assert_eq!(stats.trend.last().unwrap().depth, 4);
}

async fn refused_field(broker: &TestBroker, request: v1::ListDeadLettersRequest) -> String {
    let refused = refused(broker.dead_letters().list_dead_letters(request).await);
    assert_eq!(refused.1, "INVALID_FIELD");
    refused.2["field"].clone()
}

#[tokio::test]
async fn an_unknown_queue_a_token_of_another_list_and_a_short_window_are_refused() {
    let broker = with_dead(&["E1"]).await;
    for queue in ["orders.emial.dlq", "orders", "orders.email.retry"] {
        let request = v1::ListDeadLettersRequest {
            queue: queue.into(),
            ..all()
        };
        let refused = reason(broker.dead_letters().list_dead_letters(request).await);
        assert_eq!(refused, "QUEUE_NOT_FOUND", "{queue}");
    }
    let token = v1::ListDeadLettersRequest {
        page_token: "d1:oldest:1:0:0".into(),
        newest_first: true,
        ..all()
    };
    assert_eq!(refused_field(&broker, token).await, "page_token");
    let window = v1::GetDeadLetterStatsRequest {
        queue: "orders.email".into(),
        window: Some(seconds(59)),
        ..Default::default()
    };
    let refused = refused(broker.dead_letters().get_dead_letter_stats(window).await);
    assert_eq!(refused.2["field"], "window");
}

#[tokio::test]
async fn what_a_filter_cannot_mean_is_refused_with_the_field() {
    let broker = with_dead(&["E1"]).await;
    let many = vec![v1::DeadLetterId::default(); 10_001];
    for (wrong, field) in [
        (
            filter(|it| it.fingerprints = one("x")),
            "filter.fingerprints[0]",
        ),
        (filter(|it| it.reasons = one("bad")), "filter.reasons[0]"),
        (
            filter(|it| it.error_classes = one("bad")),
            "filter.error_classes[0]",
        ),
        (
            filter(|it| it.partitions = vec![-1]),
            "filter.partitions[0]",
        ),
        (
            filter(|it| it.max_replay_count = Some(-1)),
            "filter.max_replay_count",
        ),
        (filter(|it| it.ids = many), "filter.ids"),
    ] {
        let request = v1::ListDeadLettersRequest {
            filter: Some(wrong),
            ..all()
        };
        assert_eq!(refused_field(&broker, request).await, field);
    }
}
