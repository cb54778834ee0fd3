//! Producing through broken connections and lost answers.

use std::time::Duration;

use proptest::prelude::*;
use tonic::Code;
use varvelog_client::error::reason;
use varvelog_client::{Producer, ProducerConfig, Record, SendError};

use crate::fake::{Fake, Fault, refusal};

async fn open(fake: &Fake, config: ProducerConfig) -> Producer {
    config
        .open(&fake.connection(), "t")
        .await
        .expect("the topic is there")
}

fn busy() -> Fault {
    let mut busy = refusal(Code::ResourceExhausted, "BROKER_BUSY", &[]);
    busy.retry_after = Some(prost_types::Duration {
        seconds: 0,
        nanos: 1_000_000,
    });
    Fault::Refuse(busy)
}

fn faults() -> impl Strategy<Value = Vec<Option<Fault>>> {
    let fault = prop_oneof![
        4 => Just(None),
        2 => Just(Some(Fault::CutAfter)),
        1 => Just(Some(Fault::CutBefore)),
        1 => Just(Some(busy())),
        1 => Just(Some(Fault::Swallow)),
    ];
    prop::collection::vec(fault, 0..12)
}

async fn send_through(faults: Vec<Option<Fault>>, in_flight: usize) {
    let fake = Fake::start(3);
    fake.state().faults = faults.into();
    let config = Producer::config()
        .batch_bytes(600)
        .linger(Duration::from_millis(1))
        .in_flight(in_flight)
        .request_timeout(Duration::from_secs(2));
    let producer = open(&fake, config).await;
    let mut tickets = Vec::new();
    for number in 0..100 {
        let key = format!("k{}", number % 7);
        let record = Record::new(format!("{number:04}")).key(key);
        tickets.push(producer.send(record).await.expect("room"));
        if number % 5 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    producer.close().await.expect("all appended");
    let sent: Vec<_> = (0..100).map(|number| format!("{number:04}")).collect();
    assert_eq!(fake.all_values(), sent, "each is there once");
    for (value, ticket) in sent.iter().zip(tickets) {
        let appended = ticket.await.expect("appended");
        let partition = usize::try_from(appended.partition).expect("small");
        let offset = usize::try_from(appended.offset).expect("not negative");
        assert_eq!(
            fake.values(partition)[offset],
            *value,
            "the ticket tells the place"
        );
    }
    for partition in 0..3 {
        assert!(fake.values(partition).is_sorted(), "order is kept");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_breaks_each_record_is_there_once_in_order(
        faults in faults(), in_flight in 1_usize..8,
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
            .block_on(send_through(faults, in_flight));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_lost_with_its_connection_is_found_as_a_duplicate() {
    let fake = Fake::start(1);
    fake.state().faults.push_back(Some(Fault::CutAfter));
    let producer = open(&fake, Producer::config()).await;
    let ticket = producer.send(Record::new("x")).await.expect("room");
    let appended = ticket.await.expect("appended");
    assert!(appended.duplicate && appended.offset == 0);
    assert_eq!(fake.values(0), ["x"]);
    assert_eq!(fake.state().log.duplicates, 1);
}

#[tokio::test(start_paused = true)]
async fn without_idempotence_a_lost_answer_may_double_a_record() {
    let fake = Fake::start(1);
    fake.state().faults.push_back(Some(Fault::CutAfter));
    let producer = open(&fake, Producer::config().idempotent(false)).await;
    producer
        .send(Record::new("x"))
        .await
        .expect("room")
        .await
        .expect("appended");
    assert_eq!(fake.values(0), ["x", "x"]);
    assert_eq!(fake.state().log.inits, 0);
}

#[tokio::test(start_paused = true)]
async fn out_of_time_unanswered_may_have_applied_and_unreachable_has_not() {
    let fake = Fake::start(1);
    let delivery = Duration::from_secs(5);
    let config = || Producer::config().delivery_timeout(delivery);
    let producer = open(&fake, config()).await;
    fake.state().faults.push_back(Some(Fault::Swallow));
    let begin = tokio::time::Instant::now();
    let ticket = producer.send(Record::new("x")).await.expect("room");
    let error = ticket.await.expect_err("no answer");
    assert!(matches!(error, SendError::TimedOut { .. }), "{error}");
    assert!(error.may_have_applied());
    assert!((delivery..delivery * 2).contains(&begin.elapsed()));
    assert_eq!(fake.values(0), ["x"], "and it had");

    let producer = open(&fake, config()).await;
    fake.set_down(true);
    let ticket = producer.send(Record::new("y")).await.expect("room");
    let error = ticket.await.expect_err("unreachable");
    assert!(
        matches!(&error, SendError::TimedOut { after, .. } if *after == delivery),
        "{error}"
    );
    assert!(!error.may_have_applied());
    fake.set_down(false);
    producer
        .send(Record::new("z"))
        .await
        .expect("room")
        .await
        .expect("reachable again");
    assert_eq!(fake.values(0), ["x", "z"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stays_away_is_waited_for() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config()).await;
    fake.set_down(true);
    let ticket = producer.send(Record::new("x")).await.expect("room");
    tokio::time::sleep(Duration::from_mins(1)).await;
    fake.set_down(false);
    ticket.await.expect("appended in the end");
    assert_eq!(fake.values(0), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn opening_waits_for_a_broker_only_so_long() {
    let fake = Fake::start(1);
    fake.set_down(true);
    let begin = tokio::time::Instant::now();
    let config = Producer::config().max_block(Duration::from_secs(9));
    let error = config
        .open(&fake.connection(), "t")
        .await
        .expect_err("nobody there");
    assert_eq!(error.error.code(), Code::Unavailable);
    let waited = begin.elapsed();
    assert!(
        waited > Duration::from_secs(7) && waited <= Duration::from_secs(9),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_forgot_the_producer_gives_it_a_new_id() {
    let fake = Fake::start(2);
    let producer = open(&fake, Producer::config()).await;
    for round in 0..3 {
        for partition in 0..2 {
            let record = Record::new(format!("{round}")).partition(partition);
            drop(producer.send(record).await.expect("room"));
        }
        producer.flush().await.expect("appended");
        fake.state().log.forget_producers();
    }
    assert_eq!(fake.values(0), ["0", "1", "2"]);
    assert_eq!(fake.values(1), ["0", "1", "2"]);
    assert!(fake.state().log.inits >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_producer_is_honest_about_a_lost_answer() {
    let fake = Fake::start(1);
    let producer = open(&fake, Producer::config()).await;
    fake.set_down(true);
    let ticket = producer.send(Record::new("x")).await.expect("room");
    fake.set_down(false);
    fake.state().faults.push_back(Some(Fault::CutAfter));
    fake.until(|state| state.requests.len() == 1).await;
    fake.state().log.forget_producers();
    let error = ticket.await.expect_err("not known");
    assert!(matches!(&error, SendError::Refused { error, .. }
        if error.is(reason::PRODUCER_UNKNOWN)));
    assert!(error.may_have_applied());
    producer
        .send(Record::new("y"))
        .await
        .expect("room")
        .await
        .expect("goes on");
    assert_eq!(fake.values(0), ["x", "y"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_producers_of_a_name_the_later_one_wins() {
    let fake = Fake::start(1);
    let named = || Producer::config().name("only-one");
    let old = open(&fake, named()).await;
    old.send(Record::new("a"))
        .await
        .expect("room")
        .await
        .expect("appended");
    let new = open(&fake, named()).await;
    new.send(Record::new("b"))
        .await
        .expect("room")
        .await
        .expect("appended");
    for _ in 0..2 {
        let error = old
            .send(Record::new("c"))
            .await
            .expect("room")
            .await
            .expect_err("fenced");
        assert!(matches!(&error, SendError::Refused { error, .. }
            if error.is(reason::PRODUCER_FENCED)));
        assert!(!error.may_have_applied());
    }
    new.send(Record::new("d"))
        .await
        .expect("room")
        .await
        .expect("appended");
    assert_eq!(fake.values(0), ["a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_named_producer_goes_on_after_it_was_forgotten() {
    let fake = Fake::start(2);
    let producer = open(&fake, Producer::config().name("n")).await;
    for value in ["0", "1", "2"] {
        for partition in 0..2 {
            let record = Record::new(value).partition(partition);
            drop(producer.send(record).await.expect("room"));
        }
        producer.flush().await.expect("appended");
        fake.state().log.forget_producers();
    }
    assert_eq!(fake.values(0), ["0", "1", "2"]);
    assert_eq!(fake.values(1), ["0", "1", "2"]);
}
