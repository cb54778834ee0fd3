use varvelog_store::Offset;

use super::samples::{SOURCE, failed_once, job};
use super::thread::start_with;
use crate::core::copies::{Copies, Keys, KeysJob, ReadDone, ReadId, ReadJob, ReadResult, Replayed};

fn copy_job(id: u64) -> ReadJob {
    let mut job = job(SOURCE, vec![failed_once(0)]);
    job.id = ReadId(id);
    ReadJob::Copy(job)
}

fn keys_job(id: u64) -> ReadJob {
    ReadJob::Keys(KeysJob {
        id: ReadId(id),
        partition: SOURCE,
        from: Offset::ZERO,
        until: Offset::ZERO,
    })
}

/// Nothing of what was asked.
fn empty(job: &ReadJob) -> ReadDone {
    let (id, result) = match job {
        ReadJob::Copy(job) => (job.id, ReadResult::Copies(Copies::default())),
        ReadJob::Keys(job) => (job.id, ReadResult::Keys(Keys::default())),
        ReadJob::Replay(job) => (job.id, ReadResult::Replay(Replayed::default())),
    };
    ReadDone {
        id,
        result: Ok(result),
    }
}

#[test]
fn each_job_is_answered_once_and_in_order() {
    let link = start_with(empty).unwrap();
    for id in 0..10 {
        let job = if id % 2 == 0 {
            copy_job(id)
        } else {
            keys_job(id)
        };
        link.jobs.send(job).unwrap();
        assert_eq!(link.done.recv().unwrap().id, ReadId(id));
    }
}

#[test]
fn the_thread_ends_when_no_more_jobs_can_come() {
    let link = start_with(empty).unwrap();
    link.jobs.send(copy_job(1)).unwrap();
    drop(link.jobs);
    let answered: Vec<_> = link.done.iter().map(|done| done.id).collect();
    assert_eq!(answered, [ReadId(1)]);
}

#[test]
fn the_thread_ends_when_nobody_takes_answers() {
    let link = start_with(empty).unwrap();
    drop(link.done);
    // Refused once the thread is gone, which has its end of the queue.
    while link.jobs.send(copy_job(1)).is_ok() {}
}

#[test]
fn jobs_and_answers_that_nobody_takes_are_bounded() {
    let link = start_with(empty).unwrap();
    let sent = (0..10_000).take_while(|id| {
        let room = std::time::Duration::from_millis(200);
        link.jobs.send_timeout(copy_job(*id), room).is_ok()
    });
    assert!(sent.count() < 100);
}

#[test]
fn a_job_that_panics_is_answered_as_failed_and_the_next_is_done() {
    let link = start_with(|job| match job {
        ReadJob::Copy(job) => panic!("of job {:?}, on purpose", job.id),
        ReadJob::Keys(_) | ReadJob::Replay(_) => empty(job),
    })
    .unwrap();
    link.jobs.send(copy_job(1)).unwrap();
    link.jobs.send(keys_job(2)).unwrap();
    let failed = link.done.recv().unwrap();
    assert_eq!(failed.id, ReadId(1));
    assert_eq!(failed.result.unwrap_err().reason, "the copier panicked");
    assert!(link.done.recv().unwrap().result.is_ok());
}
