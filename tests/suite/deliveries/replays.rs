//! A replay of a thousand dead letters through a broker that is killed while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use varvelog_client::proto::{
    ConsumeRequest, CreateGroupRequest, GetDeadLetterStatsRequest, GetDeadLetterStatsResponse,
    GroupConfig, ListDeadLettersRequest, ListReplayJobsRequest, ReplayDeadLettersRequest,
    ReplayJob, ReplayState, RetryPolicy, group_admin_service_client::GroupAdminServiceClient,
};
use varvelog_client::{Admin, CallError, NewTopic, Producer, Record};

use super::workers::{Handled, Worker, caught_up, connect, read_topic, text};
use crate::program::Program;

const RECORDS: usize = 1_000;
const PARTITIONS: u32 = 3;
const KILLS: usize = 3;
const PATIENCE: Duration = Duration::from_mins(2);
const QUEUE: &str = "jobs.g.dlq";

async fn set_up(program: &Program) {
    let topic = NewTopic::new("jobs").partitions(PARTITIONS);
    let connection = program.connect().await;
    Admin::new(&connection).create_topic(topic).await.unwrap();
    let request = CreateGroupRequest {
        name: "g".into(),
        topics: vec!["jobs".into()],
        config: Some(GroupConfig {
            retry: Some(RetryPolicy::default()),
            ..GroupConfig::default()
        }),
        ..CreateGroupRequest::default()
    };
    let channel = connect(&program.grpc).await.unwrap();
    let mut groups = GroupAdminServiceClient::new(channel);
    groups.create_group(request).await.unwrap();
    let producer = Producer::open(&connection, "jobs").await.unwrap();
    let mut tickets = Vec::new();
    for number in 0..RECORDS {
        let record = Record::new(format!("job-{number}")).key(format!("key-{}", number % 50));
        tickets.push(producer.send(record).await.unwrap());
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

/// All records die, of two causes.
async fn let_all_die(server: &str) {
    let request = ConsumeRequest {
        group: "g".into(),
        max_records: 100,
        max_unacked_responses: 4,
        ..ConsumeRequest::default()
    };
    let handler = std::sync::Arc::new(|seen: &super::workers::Seen| {
        let is_even = seen.value.ends_with(['0', '2', '4', '6', '8']);
        Handled::Permanent(if is_even { "EVEN" } else { "ODD" })
    });
    let worker = Worker::start(server, request, (handler, std::sync::Arc::new(|_, _| {})));
    caught_up(server, "g", PATIENCE).await;
    drop(worker);
}

/// Tries until the broker answers, which is away now and then.
async fn until_answered<T>(mut call: impl AsyncFnMut() -> Result<T, CallError>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn stats(admin: &Admin) -> GetDeadLetterStatsResponse {
    let request = GetDeadLetterStatsRequest {
        queue: QUEUE.into(),
        ..GetDeadLetterStatsRequest::default()
    };
    let ask = async || admin.dead_letter_stats(request.clone()).await;
    let mut stats = until_answered(ask).await;
    // What time itself changes.
    stats.trend.clear();
    if let Some(queue) = &mut stats.queue {
        queue.oldest_age = None;
    }
    stats
}

/// Arrived, replayed and discarded in all, and the depth at the end.
async fn trend(admin: &Admin) -> (i64, i64, i64, i64) {
    let request = GetDeadLetterStatsRequest {
        queue: QUEUE.into(),
        ..GetDeadLetterStatsRequest::default()
    };
    let ask = async || admin.dead_letter_stats(request.clone()).await;
    let trend = until_answered(ask).await.trend;
    let sum = |of: fn(&varvelog_client::proto::TrendPoint) -> i64| trend.iter().map(of).sum();
    let depth = trend.last().map_or(0, |point| point.depth);
    (
        sum(|it| it.arrived),
        sum(|it| it.replayed),
        sum(|it| it.discarded),
        depth,
    )
}

/// Dead letters by code, as a walk through all of them counts them.
async fn scan(admin: &Admin) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    let mut request = ListDeadLettersRequest {
        queue: QUEUE.into(),
        page_size: 1_000,
        ..ListDeadLettersRequest::default()
    };
    loop {
        let page = admin.dead_letters_page(request.clone()).await.unwrap();
        for letter in page.letters {
            *found.entry(letter.error_code).or_insert(0) += 1;
        }
        if page.next_page_token.is_empty() {
            return found;
        }
        request.page_token = page.next_page_token;
    }
}

fn by_code(stats: &GetDeadLetterStatsResponse) -> BTreeMap<String, i64> {
    let errors = stats.errors.iter();
    errors.map(|it| (it.error_code.clone(), it.count)).collect()
}

/// Sends the same request three times, whatever answers come.
async fn start(admin: &Admin, request: ReplayDeadLettersRequest) -> ReplayJob {
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let ask = async || admin.replay_dead_letters(request.clone()).await;
        jobs.push(until_answered(ask).await.job.unwrap());
    }
    assert!(jobs.iter().all(|job| job.id == jobs[0].id), "one job");
    jobs.remove(0)
}

/// So many records lie in the retry topic, each once.
async fn check_copies(server: &str, count: usize) {
    let partitions = i32::try_from(PARTITIONS).unwrap();
    let mut copies = BTreeMap::<String, u32>::new();
    for copy in read_topic(server, "jobs.g.retry", partitions).await {
        *copies.entry(text(copy.value.as_deref())).or_default() += 1;
    }
    assert_eq!(copies.len(), count);
    assert!(copies.values().all(|times| *times == 1));
}

#[tokio::test]
async fn a_replay_of_a_thousand_appends_each_once_though_the_broker_is_killed_three_times() {
    let data = TempDir::new().unwrap();
    let settings = [
        ("VARVELOG__WAL__FILE_BYTES", "1MiB"),
        ("VARVELOG__CHECKPOINT__INTERVAL", "1s"),
    ];
    let mut program = Program::start(data.path(), "127.0.0.1:0", &settings);
    let server = program.grpc.clone();
    set_up(&program).await;
    let_all_die(&server).await;
    let connection = program.connect().await;
    let admin = Admin::new(&connection);
    let before = stats(&admin).await;
    assert_eq!(before.queue.as_ref().unwrap().depth, 1_000);
    assert_eq!(by_code(&before), scan(&admin).await);
    program.kill();
    program = Program::start(data.path(), &server, &settings);
    assert_eq!(stats(&admin).await, before, "the same after a restart");

    // A third of them is left out.
    let request = ReplayDeadLettersRequest {
        queue: QUEUE.into(),
        limit: 700,
        max_per_second: 200.0,
        request_id: "deploy-42".into(),
        ..ReplayDeadLettersRequest::default()
    };
    let job = start(&admin, request.clone()).await;
    assert_eq!(job.matched, 700);
    let (mut kills, mut highest) = (0, 0);
    let ended = loop {
        let ask = async || admin.replay_job(&job.id).await;
        let seen = until_answered(ask).await;
        assert!(seen.replayed >= highest, "progress never goes back");
        highest = seen.replayed;
        if seen.end_time.is_some() {
            break seen;
        }
        let is_due = seen.replayed > 150 * (i64::try_from(kills).unwrap() + 1);
        if kills < KILLS && is_due {
            program.kill();
            program = Program::start(data.path(), &server, &settings);
            kills += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(kills, KILLS);
    assert_eq!(ended.state(), ReplayState::Succeeded, "{ended:?}");
    assert_eq!((ended.replayed, ended.failed, ended.skipped), (700, 0, 0));
    assert_eq!(
        start(&admin, request).await.id,
        job.id,
        "still the same job"
    );
    let listed = admin.replay_jobs(ListReplayJobsRequest::default()).await;
    assert_eq!(listed.unwrap().jobs.len(), 1);

    check_copies(&server, 700).await;
    let after = stats(&admin).await;
    assert_eq!(after.queue.as_ref().unwrap().depth, 300);
    assert_eq!(by_code(&after), scan(&admin).await);
    assert_eq!(trend(&admin).await, (1_000, 700, 0, 300));
    program.kill();
    program = Program::start(data.path(), &server, &settings);
    assert_eq!(stats(&admin).await, after);
    assert_eq!(trend(&admin).await, (1_000, 700, 0, 300));
    drop(program);
}
