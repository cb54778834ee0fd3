//! What a start would have to read: how far the write-ahead log reaches beyond the newest
//! checkpoint, and the hold on appends that bounds it.
//!
//! A checkpoint is asked for after `checkpoint.wal_bytes`. A disk that is slow to make it falls
//! behind producers that are fast, so appends wait once twice as much was written since the
//! newest checkpoint that is done. All else goes on: what makes room on a full volume must get
//! through. The hold asks for a checkpoint itself, since one that was asked for earlier may have
//! been given up.

use std::time::Duration;

use super::pending::Pending;
use super::refusal::CallError;
use super::run::{Core, CoreFailure};
use crate::clock::MonoMs;

/// Appends wait beyond so many times `checkpoint.wal_bytes`.
const HOLD_FACTOR: u64 = 2;
/// Time after which a checkpoint that was given up is asked for again, while appends wait for it.
const RETRY: Duration = Duration::from_secs(1);

/// See the module. Pure: positions in the log and the time come in. Positions are bytes written
/// since the checkpoint that the start began with.
#[derive(Debug)]
pub(super) struct WalDebt {
    hold_bytes: u64,
    /// Where the log stood when the newest checkpoint that is done was asked for.
    done_at: u64,
    /// Where it stood when a checkpoint was last asked for; not below `done_at`.
    asked_at: u64,
    /// A checkpoint was given up: not asked for again before then.
    retry_at: Option<MonoMs>,
}

impl WalDebt {
    pub(super) fn new(checkpoint_wal_bytes: u64) -> Self {
        Self {
            hold_bytes: checkpoint_wal_bytes.saturating_mul(HOLD_FACTOR),
            done_at: 0,
            asked_at: 0,
            retry_at: None,
        }
    }

    /// A checkpoint of all that is applied was asked for.
    pub(super) fn asked(&mut self, wal_bytes: u64) {
        self.asked_at = self.asked_at.max(wal_bytes);
        self.retry_at = None;
    }

    /// The checkpoint that was asked for is done.
    pub(super) fn done(&mut self) {
        self.done_at = self.asked_at;
    }

    /// The checkpoint that was asked for was given up.
    pub(super) fn given_up(&mut self, now: MonoMs) {
        self.retry_at = Some(now.plus(RETRY));
    }

    /// Whether appends have to wait.
    pub(super) fn holds(&self, wal_bytes: u64) -> bool {
        wal_bytes.saturating_sub(self.done_at) > self.hold_bytes
    }

    /// When a checkpoint may be asked for, if not now.
    pub(super) fn not_before(&self, now: MonoMs) -> Option<MonoMs> {
        self.retry_at.filter(|at| *at > now)
    }
}

impl Core {
    /// Sets appends aside while they have to wait for a checkpoint, and puts them back behind
    /// that, in their order. A broker that stops waits for none: its last one is about to come.
    pub(super) fn hold_appends(&mut self) -> Result<(), CoreFailure> {
        if self.stopping || !self.wal_debt.holds(self.engine.wal_bytes()) {
            self.pending.put_in_front(&mut self.held);
            return Ok(());
        }
        self.pending.take_appends(&mut self.held);
        if self.checkpointing {
            return Ok(());
        }
        match self.wal_debt.not_before(self.clock.mono()) {
            Some(at) => self.timers.wake(at),
            None => self.request_checkpoint()?,
        }
        Ok(())
    }

    /// The checkpoint was given up: appends that wait for it are told to come back.
    pub(super) fn refuse_held(&mut self) {
        let error = self.refuse_append().unwrap_or(CallError::Busy {
            limit_bytes: self.wal_debt.hold_bytes,
            retry_after: RETRY,
        });
        for held in std::mem::take(&mut self.held) {
            match held {
                Pending::Append(_, reply, _room) => drop(reply.send(Err(error.clone()))),
                other @ (Pending::Change(..) | Pending::Proposal(..) | Pending::Internal(_)) => {
                    self.pending.push_back(other);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "wal_debt_tests.rs"]
mod tests;
