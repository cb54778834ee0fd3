//! The textbook example: three groups share the orders, one of them fails at some; a fourth comes
//! later and reads from the beginning, and the producer never notices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use varvelog_client::proto::{
    ConsumeRequest, CreateGroupRequest, GroupConfig, GroupMode, RetryPolicy,
    group_admin_service_client::GroupAdminServiceClient,
};
use varvelog_client::{Admin, NewTopic, Producer, Record};

use super::workers::{
    Handled, Handler, Seen, Witness, Worker, caught_up, connect, header, read_topic, text,
};
use crate::program::Program;

const ORDERS: u32 = 600;
const PARTITIONS: u32 = 3;
const PATIENCE: Duration = Duration::from_mins(1);

fn is_permanent(order: u32) -> bool {
    order % 50 == 7
}

fn is_exhausted(order: u32) -> bool {
    order % 150 == 3
}

/// Fails twice, and then not.
fn is_shaky(order: u32) -> bool {
    order % 20 == 11
}

/// Brings down whoever works at it.
fn is_deadly(order: u32) -> bool {
    order == 333
}

fn number(seen: &Seen) -> u32 {
    seen.value.parse().unwrap()
}

/// The handler of `email`: fails as the numbers say.
fn moody() -> Handler {
    Arc::new(|seen| match number(seen) {
        order if is_deadly(order) => Handled::Death,
        order if is_permanent(order) => Handled::Permanent("ADDRESS_UNKNOWN"),
        order if is_exhausted(order) => Handled::Transient("MAILBOX_FULL"),
        order if is_shaky(order) && seen.attempt < 3 => Handled::Transient("SMTP_TIMEOUT"),
        _ => Handled::Done,
    })
}

fn content() -> Handler {
    Arc::new(|_| Handled::Done)
}

/// What was done, with how often and when last.
#[derive(Debug, Default)]
struct Done(Mutex<BTreeMap<u32, (u32, Instant)>>);

impl Done {
    fn witness(self: &Arc<Self>) -> Witness {
        let done = Arc::clone(self);
        Arc::new(move |seen, handled| {
            if *handled == Handled::Done {
                let mut done = done.0.lock().unwrap();
                let entry = done.entry(number(seen)).or_insert((0, Instant::now()));
                *entry = (entry.0 + 1, Instant::now());
            }
        })
    }

    fn orders(&self) -> BTreeSet<u32> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    /// From `start` to when each of these was done.
    fn latencies(&self, start: Instant, orders: impl Fn(u32) -> bool) -> Vec<Duration> {
        let done = self.0.lock().unwrap();
        let chosen = done.iter().filter(|(order, _)| orders(**order));
        let mut all: Vec<_> = chosen
            .map(|(_, (_, at))| at.duration_since(start))
            .collect();
        all.sort_unstable();
        all
    }
}

fn join(group: &str) -> ConsumeRequest {
    ConsumeRequest {
        group: group.into(),
        topics: vec!["orders".into()],
        max_records: 10,
        ..ConsumeRequest::default()
    }
}

fn millis(ms: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: ms / 1_000,
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap(),
    }
}

/// A queue whose retries come fast, so that the test ends.
async fn create_email(server: &str) {
    let config = GroupConfig {
        mode: GroupMode::Queue.into(),
        retry: Some(RetryPolicy {
            delays: vec![millis(100), millis(200)],
            jitter_ratio: Some(0.0),
            ..RetryPolicy::default()
        }),
        session_timeout: Some(millis(1_000)),
        ..GroupConfig::default()
    };
    let request = CreateGroupRequest {
        name: "email".into(),
        topics: vec!["orders".into()],
        config: Some(config),
        ..CreateGroupRequest::default()
    };
    let channel = connect(server).await.unwrap();
    GroupAdminServiceClient::new(channel)
        .create_group(request)
        .await
        .unwrap();
}

async fn produce(program: &Program) {
    let connection = program.connect().await;
    let producer = Producer::open(&connection, "orders").await.unwrap();
    let mut tickets = Vec::new();
    for order in 0..ORDERS {
        let record = Record::new(order.to_string()).key(format!("customer-{}", order % 40));
        tickets.push(producer.send(record).await.unwrap());
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

#[tokio::test]
async fn groups_share_the_orders_and_dead_letters_are_exactly_those_that_no_delivery_could_save() {
    let data = TempDir::new().unwrap();
    let program = Program::start(data.path(), "127.0.0.1:0", &[]);
    let server = program.grpc.clone();
    let topic = NewTopic::new("orders").partitions(PARTITIONS);
    Admin::new(&program.connect().await)
        .create_topic(topic)
        .await
        .unwrap();
    create_email(&server).await;

    let mut workers = Vec::new();
    let mut done: BTreeMap<&str, Arc<Done>> = BTreeMap::new();
    for (group, count, handler) in [
        ("email", 2, moody()),
        ("analytics", 2, content()),
        ("inventory", 3, content()),
    ] {
        let seen = Arc::clone(done.entry(group).or_default());
        for _ in 0..count {
            let acts = (Arc::clone(&handler), seen.witness());
            workers.push(Worker::start(&server, join(group), acts));
        }
    }
    let start = Instant::now();
    produce(&program).await;
    let fraud = Arc::clone(done.entry("fraud").or_default());
    workers.push(Worker::start(
        &server,
        join("fraud"),
        (content(), fraud.witness()),
    ));

    for group in done.keys() {
        caught_up(&server, group, PATIENCE).await;
    }
    let all: BTreeSet<u32> = (0..ORDERS).collect();
    for group in ["analytics", "inventory", "fraud"] {
        assert_eq!(done[group].orders(), all, "{group} was given everything");
    }
    let dead = |order: &u32| is_permanent(*order) || is_exhausted(*order) || is_deadly(*order);
    let saved: BTreeSet<u32> = all.iter().filter(|order| !dead(order)).copied().collect();
    let found = done["email"].orders();
    assert_eq!(
        (
            saved.difference(&found).collect::<Vec<_>>(),
            found.difference(&saved).collect::<Vec<_>>()
        ),
        (Vec::new(), Vec::new()),
        "not done though they could be, and done though they could not"
    );
    check_dead_letters(&server, &all.iter().copied().filter(dead).collect()).await;

    let is_healthy = |order| !is_shaky(order);
    let healthy = done["email"].latencies(start, is_healthy);
    let beside = done["analytics"].latencies(start, is_healthy);
    let middle = |all: &Vec<Duration>| all[all.len() / 2];
    println!(
        "healthy orders: median {:?} and last {:?} with poisoned ones among them, median {:?} and \
         last {:?} without",
        middle(&healthy),
        healthy.last(),
        middle(&beside),
        beside.last()
    );
}

async fn check_dead_letters(server: &str, wanted: &BTreeSet<u32>) {
    let letters = read_topic(
        server,
        "orders.email.dlq",
        i32::try_from(PARTITIONS).unwrap(),
    )
    .await;
    let found: BTreeSet<u32> = letters
        .iter()
        .map(|letter| text(letter.value.as_deref()).parse().unwrap())
        .collect();
    assert_eq!(&found, wanted);
    assert_eq!(letters.len(), wanted.len(), "each is there once");
    for letter in &letters {
        let order: u32 = text(letter.value.as_deref()).parse().unwrap();
        let named = |name: &str| header(letter, &format!("varvelog-{name}")).unwrap_or_default();
        let (reason, class, attempts) = match order {
            order if is_permanent(order) => ("permanent", "permanent", 1),
            order if is_deadly(order) => ("max_deliveries", "crash", 5),
            _ => ("max_deliveries", "transient", 5),
        };
        let attempt: u32 = named("attempt").parse().unwrap();
        let error_class = named("error-class");
        assert_eq!(named("dead-reason"), reason, "order {order}");
        // Who was in flight beside the deadly order inherits its crashes, until that one is given
        // out alone (after two of them).
        let inherited = if attempts == 1 { 0..=2 } else { 0..=0 };
        assert!(
            inherited.contains(&(attempt - attempts)),
            "{order}: {attempt}"
        );
        let by_a_neighbour = class == "transient" && error_class == "crash";
        assert!(
            error_class == class || by_a_neighbour,
            "{order}: {error_class}"
        );
        assert_eq!(named("origin-topic"), "orders");
        assert_eq!(named("queue"), "orders.email");
        assert!(!named("message-id").is_empty() && !named("error-fingerprint").is_empty());
        assert_eq!(
            text(letter.key.as_deref()),
            format!("customer-{}", order % 40)
        );
        if error_class != "crash" {
            assert!(named("error-message").starts_with(&format!("record {order} at attempt")));
            assert!(named("error-stack").contains("worker.rs:12"));
        }
    }
}
