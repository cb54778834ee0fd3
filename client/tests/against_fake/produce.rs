//! Producing while all is well, and while the broker is slow or refuses.

use std::time::Duration;

use tonic::Code;
use varvelog_client::{Admin, error::reason};
use varvelog_client::{
    Appended, Compression, Producer, ProducerConfig, Record, RecordError, SendError, Ticket,
};
use varvelog_store::batch::partition_for_key;

use crate::fake::{Fake, Fault, refusal};

async fn open(fake: &Fake, config: ProducerConfig) -> Producer {
    config
        .open(&fake.connection(), "t")
        .await
        .expect("the topic is there")
}

async fn send(producer: &Producer, record: Record) -> Ticket {
    producer.send(record).await.expect("there is room")
}

async fn appended(ticket: Ticket) -> Appended {
    ticket.await.expect("appended")
}

#[tokio::test(start_paused = true)]
async fn records_come_back_as_they_were_sent_under_every_compression() {
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let fake = Fake::start(1);
        let producer = open(&fake, Producer::config().compression(compression)).await;
        let mut tickets = Vec::new();
        for number in 0..300 {
            tickets.push(send(&producer, Record::new(format!("value {number}"))).await);
        }
        producer.flush().await.expect("all appended");
        for (offset, ticket) in (0..).zip(tickets) {
            assert_eq!(appended(ticket).await.offset, offset, "{compression:?}");
        }
        let values: Vec<_> = (0..300).map(|number| format!("value {number}")).collect();
        assert_eq!(fake.values(0), values, "{compression:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_keep_their_partition_and_their_order() {
    let fake = Fake::start(6);
    let producer = open(&fake, Producer::config().batch_bytes(400)).await;
    let mut tickets = Vec::new();
    for number in 0..500 {
        let key = format!("k{}", number % 17);
        let record = Record::new(format!("{key} {number:04}")).key(key);
        tickets.push(send(&producer, record).await);
    }
    producer.close().await.expect("all appended");
    for partition in 0..6 {
        for key in 0..17 {
            let prefix = format!("k{key} ");
            let own: Vec<_> = fake
                .values(partition)
                .into_iter()
                .filter(|v| v.starts_with(&prefix))
                .collect();
            let home = partition_for_key(format!("k{key}").as_bytes(), 6);
            assert_eq!(
                own.is_empty(),
                home != u32::try_from(partition).expect("small")
            );
            assert!(own.is_sorted(), "{own:?}");
        }
    }
    assert_eq!(
        appended(tickets.remove(0)).await.partition,
        partition_for_key(b"k0", 6)
    );
}

#[tokio::test(start_paused = true)]
async fn an_explicit_partition_is_taken_as_given() {
    let fake = Fake::start(3);
    let producer = open(&fake, Producer::config()).await;
    let ticket = send(&producer, Record::new("x").key("k").partition(2)).await;
    assert_eq!(appended(ticket).await.partition, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lone_record_leaves_when_it_has_lingered() {
    let fake = Fake::start(1);
    let linger = Duration::from_millis(40);
    let producer = open(&fake, Producer::config().linger(linger)).await;
    let begin = tokio::time::Instant::now();
    let first = send(&producer, Record::new("a")).await;
    let second = send(&producer, Record::new("b")).await;
    appended(first).await;
    appended(second).await;
    let state = fake.state();
    assert_eq!(state.requests.len(), 1);
    assert_eq!(state.requests[0].batches, [(0, 2)], "both in one batch");
    let waited = state.requests[0].at - begin;
    assert!(
        (linger..linger + Duration::from_millis(3)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_linger() {
    let fake = Fake::start(1);
    let config = Producer::config()
        .linger(Duration::from_hours(1))
        .batch_bytes(1_000);
    let producer = open(&fake, config).await;
    let begin = tokio::time::Instant::now();
    let mut tickets = Vec::new();
    for _ in 0..10 {
        tickets.push(send(&producer, Record::new(vec![b'x'; 300])).await);
    }
    appended(tickets.remove(0)).await;
    assert!(begin.elapsed() < Duration::from_secs(1));
    producer
        .flush()
        .await
        .expect("a flush does not linger either");
    assert_eq!(fake.values(0).len(), 10);
    let most = fake
        .state()
        .requests
        .iter()
        .flat_map(|seen| seen.batches.clone())
        .max();
    assert_eq!(most, Some((0, 2)), "300 bytes and overhead: two to a batch");
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_makes_sends_wait_and_then_fail() {
    let fake = Fake::start(1);
    let block = Duration::from_secs(10);
    let config = Producer::config().buffer_bytes(10_000).max_block(block);
    let producer = open(&fake, config).await;
    fake.stall(true);
    let record = || Record::new(vec![b'x'; 900]);
    let mut tickets = Vec::new();
    while let Ok(ticket) = producer.try_send(record()) {
        tickets.push(ticket);
    }
    assert_eq!(tickets.len(), 10_000 / record().buffer_bytes());
    let begin = tokio::time::Instant::now();
    let error = producer.send(record()).await.expect_err("full");
    assert!(
        matches!(
            error,
            SendError::BufferFull {
                buffer_bytes: 10_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.is_retryable() && !error.may_have_applied());
    assert!((block..block * 2).contains(&begin.elapsed()));

    let waiting = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(record()).await }
    });
    fake.stall(false);
    let ticket = waiting.await.expect("no panic").expect("room again");
    appended(ticket).await;
    for ticket in tickets {
        appended(ticket).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_can_never_be_sent_is_refused_at_once() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config().buffer_bytes(10_000)).await;
    let error = producer
        .send(Record::new(vec![0; 10_000]))
        .await
        .expect_err("too large");
    assert!(
        matches!(error, SendError::Invalid(RecordError::TooLarge { .. })),
        "{error}"
    );
    let error = producer
        .send(Record::new("x").partition(10_000))
        .await
        .expect_err("no such");
    assert!(
        matches!(error, SendError::Invalid(RecordError::Partition { .. })),
        "{error}"
    );
    let error = producer
        .send(Record::new("x").timestamp_ms(-1))
        .await
        .expect_err("negative");
    assert!(
        matches!(error, SendError::Invalid(RecordError::Timestamp { .. })),
        "{error}"
    );
    let name = producer
        .send(Record::new("x").header(&b"\xff"[..], ""))
        .await
        .expect_err("name");
    assert!(
        matches!(
            name,
            SendError::Invalid(RecordError::HeaderName { header: 0 })
        ),
        "{name}"
    );
    let slot = producer.reserve(100).await.expect("room");
    let error = slot
        .submit(Record::new(vec![0; 200]))
        .expect_err("larger than reserved");
    assert!(
        matches!(error, SendError::Invalid(RecordError::TooLarge { .. })),
        "{error}"
    );
    assert!(fake.state().requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_out_than_allowed() {
    let fake = Fake::start(8);
    let config = Producer::config()
        .in_flight(3)
        .linger(Duration::ZERO)
        .request_bytes(1);
    let producer = open(&fake, config).await;
    fake.stall(true);
    for number in 0..80 {
        drop(send(&producer, Record::new("x").partition(number % 8)).await);
        tokio::task::yield_now().await;
    }
    fake.until(|state| state.unanswered == 3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fake.state().unanswered, 3);
    fake.stall(false);
    producer.flush().await.expect("all appended");
    assert_eq!(fake.all_values().len(), 80);
}

#[tokio::test(start_paused = true)]
async fn batches_of_several_partitions_share_a_request() {
    let fake = Fake::start(4);
    let producer = open(&fake, Producer::config()).await;
    for partition in 0..4 {
        drop(send(&producer, Record::new("x").partition(partition)).await);
    }
    producer.flush().await.expect("all appended");
    assert_eq!(fake.state().requests.len(), 1);
    assert_eq!(fake.state().requests[0].batches.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_brokers_time_to_wait_is_honoured() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config()).await;
    let mut busy = refusal(Code::ResourceExhausted, "BACKPRESSURE_DEPTH", &[]);
    busy.retry_after = Some(prost_types::Duration {
        seconds: 7,
        nanos: 0,
    });
    fake.state().faults.push_back(Some(Fault::Refuse(busy)));
    appended(send(&producer, Record::new("x")).await).await;
    let state = fake.state();
    let waited = state.requests[1].at - state.requests[0].at;
    assert!(
        waited >= Duration::from_secs(7) && waited < Duration::from_secs(8),
        "{waited:?}"
    );
}

fn pressed(seconds: i64) -> Fault {
    let limits = [("limit", 1_000), ("current", 1_001)];
    let mut pressed = refusal(Code::ResourceExhausted, "BACKPRESSURE_DEPTH", &limits);
    pressed.retry_after = Some(prost_types::Duration { seconds, nanos: 0 });
    Fault::Refuse(pressed)
}

#[tokio::test(start_paused = true)]
async fn a_record_is_given_up_when_the_broker_refuses_producers_for_as_long_as_a_send_may_block() {
    let fake = Fake::start(1);
    let config = Producer::config().max_block(Duration::from_secs(20));
    let producer = open(&fake, config).await;
    let refuse = |times| {
        let faults = (0..times).map(|_| Some(pressed(3)));
        fake.state().faults.extend(faults);
    };
    // Refusals that end in time hurt nobody.
    refuse(5);
    appended(send(&producer, Record::new("early")).await).await;
    refuse(1_000);
    let began = tokio::time::Instant::now();
    let error = send(&producer, Record::new("late")).await.await;
    let error = error.expect_err("the gate stays closed");
    let waited = began.elapsed();
    assert!(
        waited >= Duration::from_secs(20) && waited < Duration::from_secs(24),
        "{waited:?}"
    );
    assert!(error.is_retryable() && !error.may_have_applied());
    let SendError::Backpressure { error, .. } = error else {
        panic!("{error}")
    };
    assert!(error.is_backpressure());
    assert_eq!(error.metadata_number("limit"), Some(1_000));
    let tries = fake.state().requests.len();
    assert!(tries < 20, "the delay is honoured: {tries} tries");
    fake.state().faults.clear();
    appended(send(&producer, Record::new("again")).await).await;
    assert_eq!(fake.values(0), ["early", "again"]);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_finds_no_room_while_the_broker_refuses_says_so() {
    let fake = Fake::start(1);
    let config = Producer::config()
        .buffer_bytes(4 << 10)
        .linger(Duration::ZERO)
        .max_block(Duration::from_secs(2))
        .delivery_timeout(Duration::from_mins(10));
    let producer = open(&fake, config).await;
    let faults = (0..1_000).map(|_| Some(pressed(30)));
    fake.state().faults.extend(faults);
    let first = send(&producer, Record::new(vec![0; 3 << 10])).await;
    fake.until(|state| !state.requests.is_empty()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let full = producer.try_send(Record::new(vec![0; 3 << 10]));
    assert!(
        matches!(&full, Err(SendError::Backpressure { error, .. })
            if error.retry_after() == Some(Duration::from_secs(30))),
        "{full:?}"
    );
    let error = first.await.expect_err("given up");
    assert!(matches!(error, SendError::Backpressure { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_fails_alone_and_flush_tells() {
    let fake = Fake::start(2);
    let producer = open(&fake, Producer::config().linger(Duration::ZERO)).await;
    let mut tickets = Vec::new();
    for value in ["a", "poison", "b", "c"] {
        tickets.push(send(&producer, Record::new(value).partition(0)).await);
        tokio::task::yield_now().await;
    }
    tickets.push(send(&producer, Record::new("d").partition(1)).await);
    let error = producer.flush().await.expect_err("one failed");
    assert!(!error.may_have_applied() && !error.is_retryable());
    producer.flush().await.expect("told once");
    let mut refused = 0;
    for ticket in tickets {
        match ticket.await {
            Ok(_) => {}
            Err(SendError::Refused { error, .. }) if error.is("RECORD_TOO_LARGE") => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(fake.values(0), ["a", "b", "c"]);
    assert_eq!(fake.values(1), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_there_gives_no_producer() {
    let fake = Fake::start(1);
    let error = Producer::open(&fake.connection(), "nowhere")
        .await
        .expect_err("no such topic");
    assert_eq!(error.topic, "nowhere");
    assert!(error.error.is(reason::TOPIC_NOT_FOUND));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_partition_is_refused_and_the_topic_looked_up_again() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config()).await;
    let error = send(&producer, Record::new("x").partition(5))
        .await
        .await
        .expect_err("unknown");
    assert!(matches!(&error, SendError::Refused { error, .. }
        if error.is(reason::PARTITION_NOT_FOUND)));
    fake.state()
        .log
        .topics
        .insert("t".to_owned(), vec![Vec::new(); 9]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.state().topic_lookups, 2);
    let key = b"some key";
    let ticket = send(&producer, Record::new("x").key(&key[..])).await;
    assert_eq!(appended(ticket).await.partition, partition_for_key(key, 9));
}

#[tokio::test(start_paused = true)]
async fn a_closed_producer_takes_nothing_from_any_clone() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config()).await;
    let clone = producer.clone();
    let ticket = send(&producer, Record::new("x")).await;
    producer.close().await.expect("appended");
    assert_eq!(appended(ticket).await.offset, 0);
    let error = clone.send(Record::new("y")).await.expect_err("closed");
    assert!(matches!(error, SendError::Closed) && !error.may_have_applied());
    assert!(matches!(clone.flush().await, Err(SendError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_is_delivered_after_the_last_handle_is_dropped() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config().linger(Duration::from_hours(1))).await;
    let ticket = send(&producer, Record::new("x")).await;
    drop(producer);
    assert_eq!(appended(ticket).await.offset, 0);
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_page_after_page() {
    let fake = Fake::start(1);
    let topics = Admin::new(&fake.connection())
        .topics("", false)
        .await
        .expect("listed");
    let names: Vec<_> = topics.into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["topic-0", "topic-1", "topic-2"]);
}
