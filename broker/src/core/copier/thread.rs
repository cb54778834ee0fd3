//! The thread that reads for the group machine.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crossbeam_channel::bounded;

use super::super::copies::{ReadDone, ReadJob, ReadTrouble};
use super::super::run::CopierLink;
use super::reading::perform;
use crate::view::View;

/// Jobs that wait; who has more keeps them.
const JOBS_MAX: usize = 64;
/// Answers that wait: each may hold [`super::COPIES_BYTES_MAX`].
const DONE_MAX: usize = 4;

/// Starts the thread, which reads through `view`. Each job is answered once, in order; the thread
/// waits while answers are not taken, so who has jobs must not wait for it without taking them. It
/// ends when either end is dropped.
pub fn start(view: View) -> io::Result<CopierLink> {
    start_with(move |job| perform(&view, job))
}

pub(super) fn start_with(
    perform: impl Fn(&ReadJob) -> ReadDone + Send + 'static,
) -> io::Result<CopierLink> {
    let (jobs, incoming) = bounded(JOBS_MAX);
    let (outgoing, done) = bounded(DONE_MAX);
    let run = move || {
        for job in incoming {
            if outgoing.send(answer(&perform, &job)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("varvelog-copy".into())
        .spawn(run)?;
    Ok(CopierLink { jobs, done })
}

/// A job that panics is answered as one that failed: the records stay where they are, and whoever
/// waits for them hears of it.
fn answer(perform: impl Fn(&ReadJob) -> ReadDone, job: &ReadJob) -> ReadDone {
    // Nothing outlives a job but the view, which no job changes.
    let done = catch_unwind(AssertUnwindSafe(|| perform(job)));
    done.unwrap_or_else(|_panic| {
        let id = match job {
            ReadJob::Copy(job) => job.id,
            ReadJob::Keys(job) => job.id,
            ReadJob::Replay(job) => job.id,
        };
        tracing::error!(?id, "the copier panicked: a bug");
        let reason = "the copier panicked".to_owned();
        ReadDone {
            id,
            result: Err(ReadTrouble { reason }),
        }
    })
}
