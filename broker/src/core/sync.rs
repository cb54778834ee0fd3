//! The sync helper: a thread that makes written rounds durable while the core goes on.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use varvelog_store::Sequence;
use varvelog_store::wal::{SyncJob, WalError};

use crate::meters::Meters;

/// The thread and its two channels. At most one job is in flight.
#[derive(Debug)]
pub(super) struct Syncer {
    jobs: Option<Sender<SyncJob>>,
    results: Receiver<Result<Sequence, WalError>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread, which records how long each sync takes.
    pub(super) fn start(meters: Meters) -> std::io::Result<Self> {
        let (jobs, incoming) = bounded::<SyncJob>(1);
        let (outgoing, results) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("varvelog-sync".into())
            .spawn(move || {
                for job in incoming {
                    let began = meters.start();
                    let synced = job.run();
                    meters.took(&meters.wal_sync, began);
                    if outgoing.send(synced).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self {
            jobs: Some(jobs),
            results,
            thread: Some(thread),
        })
    }

    /// Hands a job over; the one before must have been answered.
    pub(super) fn begin(&self, job: SyncJob) {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job).is_ok());
        assert_eq!(
            sent,
            Some(true),
            "the sync thread lives as long as the core"
        );
    }

    /// Where results arrive: the sequence up to which everything is durable.
    pub(super) fn results(&self) -> &Receiver<Result<Sequence, WalError>> {
        &self.results
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
