//! Replays, discards and their audit as an operator uses them.

use std::time::Duration;

use tonic::Code;
use varvelog_proto::v1;

use super::dead_letters::{die, list, offsets, one, queues, with_dead};
use super::failures::{failure, settle, stored};
use super::groups::{delivery, join, member};
use super::{TestBroker, reason, refused, soon};

pub(super) const QUEUE: &str = "orders.email.dlq";

pub(super) fn replay_of() -> v1::ReplayDeadLettersRequest {
    v1::ReplayDeadLettersRequest {
        queue: QUEUE.into(),
        max_per_second: 10_000.0,
        ..Default::default()
    }
}

fn ids(offsets: &[i64]) -> v1::DeadLetterFilter {
    let id = |offset: &i64| v1::DeadLetterId {
        partition: 0,
        offset: *offset,
    };
    v1::DeadLetterFilter {
        ids: offsets.iter().map(id).collect(),
        ..Default::default()
    }
}

async fn replay(
    broker: &TestBroker,
    request: v1::ReplayDeadLettersRequest,
) -> v1::ReplayDeadLettersResponse {
    let answer = broker.dead_letters().replay_dead_letters(request).await;
    answer.unwrap().into_inner()
}

pub(super) async fn start(
    broker: &TestBroker,
    request: v1::ReplayDeadLettersRequest,
) -> v1::ReplayJob {
    replay(broker, request).await.job.unwrap()
}

async fn job(broker: &TestBroker, id: &str) -> v1::ReplayJob {
    let request = v1::GetReplayJobRequest { id: id.into() };
    let found = broker.dead_letters().get_replay_job(request).await;
    found.unwrap().into_inner().job.unwrap()
}

/// The job when `holds` is true of it.
async fn job_when(
    broker: &TestBroker,
    id: &str,
    holds: impl Fn(&v1::ReplayJob) -> bool,
) -> v1::ReplayJob {
    soon(async {
        loop {
            let found = job(broker, id).await;
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn ended(broker: &TestBroker, id: &str) -> v1::ReplayJob {
    job_when(broker, id, |job| job.end_time.is_some()).await
}

async fn letters(broker: &TestBroker) -> Vec<i64> {
    let request = v1::ListDeadLettersRequest {
        queue: QUEUE.into(),
        ..Default::default()
    };
    offsets(&list(broker, request).await)
}

async fn discard(
    broker: &TestBroker,
    request: v1::DiscardDeadLettersRequest,
) -> v1::DiscardDeadLettersResponse {
    let answer = broker.dead_letters().discard_dead_letters(request).await;
    answer.unwrap().into_inner()
}

async fn audit(broker: &TestBroker, subject: &str) -> Vec<(String, i64)> {
    let request = v1::ListAuditRequest {
        subject: subject.into(),
        ..Default::default()
    };
    let listed = broker.dead_letters().list_audit(request).await;
    let entries = listed.unwrap().into_inner().entries;
    entries
        .into_iter()
        .map(|it| (it.action, it.count))
        .collect()
}

#[tokio::test]
async fn t43_and_t37_selected_entries_come_back_to_their_group_alone_as_first_attempts() {
    let broker = with_dead(&["E1", "E2", "E3", "E4"]).await;
    let all = v1::ListDeadLettersRequest {
        queue: QUEUE.into(),
        ..Default::default()
    };
    let before = list(&broker, all).await.letters;
    let request = v1::ReplayDeadLettersRequest {
        filter: Some(ids(&[0, 2, 3])),
        ..replay_of()
    };
    let job = start(&broker, request).await;
    assert_eq!((job.matched, job.queue.as_str()), (3, QUEUE));
    let job = ended(&broker, &job.id).await;
    assert_eq!(job.state(), v1::ReplayState::Succeeded);
    assert_eq!((job.replayed, job.failed, job.skipped), (3, 0, 0));
    assert_eq!(letters(&broker).await, [1]);
    let queue = queues(&broker).await.remove(0);
    assert_eq!((queue.depth, queue.claimed, queue.active_jobs), (1, 0, 0));
    assert_eq!(queue.departures_last_hour, 3);

    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let given = delivery(&mut stream).await;
        assert!(given.records.iter().all(|record| record.attempt == 1));
        seen.extend(given.records.clone());
        settle(&broker, &given, Vec::new()).await;
    }
    let ids: Vec<&str> = seen.iter().map(|it| it.message_id.as_str()).collect();
    let of = |index: usize| before[index].record.as_ref().unwrap().message_id.as_str();
    assert_eq!(
        ids,
        [of(0), of(2), of(3)],
        "the same message ids, oldest first"
    );
    assert_eq!(seen[0].offset, 0, "named by the first append");
    assert!(seen[0].headers.is_empty(), "as produced");
}

#[tokio::test]
async fn the_headers_of_a_replayed_record_are_its_origin_its_history_and_its_replay() {
    let broker = with_dead(&["E1"]).await;
    let dead = stored(&broker, QUEUE).await.remove(0);
    let job = start(&broker, replay_of()).await;
    ended(&broker, &job.id).await;
    let copy = stored(&broker, "orders.email.retry").await.remove(0);
    let text = |record: &v1::Record, name: &str| {
        let value = record.headers.get(&format!("varvelog-{name}"));
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    for kept in [
        "message-id",
        "origin-topic",
        "origin-partition",
        "origin-offset",
        "origin-timestamp-ms",
        "queue",
        "first-failure-ms",
        "attempt-log",
    ] {
        assert!(text(&copy, kept).is_some(), "{kept} is there");
        assert_eq!(text(&copy, kept), text(&dead, kept), "{kept}");
    }
    assert_eq!(text(&copy, "attempt").as_deref(), Some("0"));
    assert_eq!(text(&copy, "replay-count").as_deref(), Some("1"));
    assert_eq!(text(&copy, "replay-job").as_deref(), Some(job.id.as_str()));
    let from = format!("{QUEUE}/0/0");
    assert_eq!(text(&copy, "replayed-from"), Some(from));
    assert_eq!(
        copy.headers.len(),
        12,
        "and nothing else: {:?}",
        copy.headers.keys()
    );
    assert_eq!((copy.value, copy.key), (dead.value, dead.key));
}

#[tokio::test]
async fn a_record_that_dies_again_is_a_new_entry_with_one_more_replay_and_counts_to_its_job() {
    let broker = with_dead(&["E1", "E2"]).await;
    let first = start(&broker, replay_of()).await;
    ended(&broker, &first.id).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let mut failed = 0;
    while failed < 2 {
        let given = delivery(&mut stream).await;
        failed += given.records.len();
        let fails = |record: &v1::Record| failure(record.offset, v1::FailureAction::DeadLetter);
        let failures = given.records.iter().map(fails).collect();
        settle(&broker, &given, failures).await;
    }
    assert_eq!(job(&broker, &first.id).await.failed_again, 2);
    let request = v1::ListDeadLettersRequest {
        queue: QUEUE.into(),
        ..Default::default()
    };
    let again = list(&broker, request).await.letters;
    assert_eq!(again.len(), 2);
    for letter in &again {
        assert_eq!((letter.replay_count, letter.deliveries), (1, 1));
        let codes: Vec<&str> = letter
            .attempts
            .iter()
            .map(|it| it.error_code.as_str())
            .collect();
        assert_eq!(codes.len(), 2, "its history goes on");
        assert_eq!(codes[1], "E7");
    }
}

#[tokio::test]
async fn t46_a_plan_is_carried_out_as_it_was_counted_but_for_what_changed_meanwhile() {
    let broker = with_dead(&["E1", "E2", "E2", "E3"]).await;
    let planned = v1::ReplayDeadLettersRequest {
        validate_only: true,
        max_per_second: 2.0,
        ..replay_of()
    };
    let plan = replay(&broker, planned).await;
    assert_eq!((plan.matched, plan.skipped), (4, 0));
    assert_eq!(plan.estimated_duration, Some(super::seconds(2)));
    assert!(plan.job.is_none() && plan.matched_bytes > 0);
    let counted = plan
        .errors
        .iter()
        .map(|it| (it.error_code.as_str(), it.count));
    assert_eq!(counted.collect::<Vec<_>>()[0], ("E2", 2));
    let sample = plan.errors[0].sample_id.unwrap();
    assert_eq!((sample.partition, sample.offset), (0, 2));
    assert_eq!(letters(&broker).await, [0, 1, 2, 3], "nothing changed");

    let other = v1::ReplayDeadLettersRequest {
        filter: Some(ids(&[1])),
        ..replay_of()
    };
    let other = start(&broker, other).await;
    ended(&broker, &other.id).await;
    die(&broker, &["E9"]).await;
    let by_plan = v1::ReplayDeadLettersRequest {
        plan_id: plan.plan_id.clone(),
        ..replay_of()
    };
    let job = start(&broker, by_plan.clone()).await;
    assert_eq!((job.matched, job.skipped), (3, 1));
    ended(&broker, &job.id).await;
    assert_eq!(
        letters(&broker).await.len(),
        1,
        "what died later is no part of it"
    );
    let again = broker.dead_letters().replay_dead_letters(by_plan).await;
    assert_eq!(reason(again), "PLAN_EXPIRED");
}

#[tokio::test]
async fn the_same_request_is_one_job_and_another_with_its_id_is_refused() {
    let broker = with_dead(&["E1", "E2"]).await;
    let request = v1::ReplayDeadLettersRequest {
        request_id: "deploy-42".into(),
        ..replay_of()
    };
    let mut started = Vec::new();
    for _ in 0..3 {
        started.push(start(&broker, request.clone()).await.id);
    }
    assert!(started.iter().all(|id| *id == started[0]));
    ended(&broker, &started[0]).await;
    assert_eq!(stored(&broker, "orders.email.retry").await.len(), 2);
    let other = v1::ReplayDeadLettersRequest {
        note: "another".into(),
        ..request
    };
    let refused = broker.dead_letters().replay_dead_letters(other).await;
    assert_eq!(reason(refused), "REQUEST_ID_REUSED");
    let listed = broker
        .dead_letters()
        .list_replay_jobs(v1::ListReplayJobsRequest::default())
        .await;
    assert_eq!(listed.unwrap().into_inner().jobs.len(), 1);
}

#[tokio::test]
async fn a_job_is_paused_resumed_and_cancelled_and_what_it_has_is_seen() {
    let broker = with_dead(&["E1", "E2", "E3"]).await;
    let slow = v1::ReplayDeadLettersRequest {
        max_per_second: 1.0,
        ..replay_of()
    };
    let started = start(&broker, slow).await;
    let id = started.id.clone();
    job_when(&broker, &id, |job| job.replayed > 0).await;
    let mut dead_letters = broker.dead_letters();
    let pause = v1::PauseReplayJobRequest { id: id.clone() };
    let paused = dead_letters.pause_replay_job(pause).await.unwrap();
    let paused = paused.into_inner().job.unwrap();
    assert_eq!(paused.state(), v1::ReplayState::Paused);
    let left = 3 - paused.replayed;
    assert_eq!(queues(&broker).await[0].claimed, left);
    let request = v1::ListDeadLettersRequest {
        queue: QUEUE.into(),
        ..Default::default()
    };
    let claimed = list(&broker, request).await.letters;
    assert!(claimed.iter().all(|letter| letter.replay_job == id));
    let overlap = start(&broker, replay_of()).await;
    assert_eq!((overlap.matched, overlap.skipped), (0, left));
    let resume = v1::ResumeReplayJobRequest { id: id.clone() };
    dead_letters
        .resume_replay_job(resume.clone())
        .await
        .unwrap();
    let cancel = v1::CancelReplayJobRequest { id: id.clone() };
    for _ in 0..2 {
        let cancelled = dead_letters.cancel_replay_job(cancel.clone()).await;
        let cancelled = cancelled.unwrap().into_inner().job.unwrap();
        assert!(cancelled.end_time.is_some());
    }
    let (code, reason, metadata) = refused(dead_letters.resume_replay_job(resume).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::FailedPrecondition, "JOB_ENDED")
    );
    assert!(["cancelled", "succeeded"].contains(&metadata["state"].as_str()));
    assert_eq!(queues(&broker).await[0].claimed, 0);
    let unknown = v1::GetReplayJobRequest {
        id: "replay-99".into(),
    };
    let refused = refused(dead_letters.get_replay_job(unknown).await);
    assert_eq!(refused.1, "JOB_NOT_FOUND");
}

#[tokio::test]
async fn entries_are_discarded_in_two_steps_and_the_second_is_answered_the_same_again() {
    let broker = with_dead(&["E1", "E2", "E2"]).await;
    let none = v1::DiscardDeadLettersRequest {
        queue: QUEUE.into(),
        ..Default::default()
    };
    let refused = broker
        .dead_letters()
        .discard_dead_letters(none.clone())
        .await;
    assert_eq!(reason(refused), "PLAN_REQUIRED");
    let plan = v1::DiscardDeadLettersRequest {
        filter: Some(v1::DeadLetterFilter {
            error_codes: one("E2"),
            ..Default::default()
        }),
        validate_only: true,
        ..none.clone()
    };
    let plan = discard(&broker, plan).await;
    assert_eq!((plan.matched, plan.discarded, plan.skipped), (2, 0, 0));
    assert_eq!(letters(&broker).await.len(), 3);
    let execute = v1::DiscardDeadLettersRequest {
        plan_id: plan.plan_id,
        note: "seen to by hand".into(),
        ..none.clone()
    };
    for _ in 0..2 {
        let done = discard(&broker, execute.clone()).await;
        assert_eq!((done.matched, done.discarded, done.skipped), (2, 2, 0));
    }
    assert_eq!(letters(&broker).await, [0]);
    let unknown = v1::DiscardDeadLettersRequest {
        plan_id: "unknown".into(),
        ..none
    };
    let refused = broker.dead_letters().discard_dead_letters(unknown).await;
    assert_eq!(reason(refused), "PLAN_EXPIRED");
    let expected = [("DiscardDeadLetters".to_owned(), 2)];
    for subject in ["", "orders", "email", "orders.email", QUEUE] {
        assert_eq!(audit(&broker, subject).await, expected, "{subject}");
    }
    assert_eq!(audit(&broker, "bills").await, []);
}

#[tokio::test]
async fn a_replay_into_another_topic_goes_there_and_says_who_reads_it() {
    let broker = with_dead(&["E1"]).await;
    broker.topic("again", 1).await;
    let request = v1::ReplayDeadLettersRequest {
        target_topic: "again".into(),
        ..replay_of()
    };
    let plan = v1::ReplayDeadLettersRequest {
        validate_only: true,
        ..request.clone()
    };
    let warning = replay(&broker, plan.clone()).await.warning;
    assert!(warning.contains("no group reads again"), "{warning}");
    let create = v1::CreateGroupRequest {
        name: "other".into(),
        topics: vec!["again".into()],
        ..Default::default()
    };
    broker.group_admin().create_group(create).await.unwrap();
    let warning = replay(&broker, plan).await.warning;
    assert!(warning.contains("other"), "{warning}");
    let job = start(&broker, request).await;
    let job = ended(&broker, &job.id).await;
    assert_eq!((job.replayed, job.target_topic.as_str()), (1, "again"));
    assert_eq!(
        stored(&broker, "again").await[0].value.as_deref(),
        Some(&b"v0"[..])
    );
    assert!(stored(&broker, "orders.email.retry").await.is_empty());
}
