//! The budget of all buffers of requests and replies.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::service::status::EdgeRefusal;

/// Permits are counted in units of so many bytes.
const UNIT_BYTES: usize = 1024;
/// When a caller that was refused may find room.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Bytes that may be in buffers at a time. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    units: Arc<Semaphore>,
    limit_units: u32,
}

/// Room taken from a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct BudgetPermit {
    room: OwnedSemaphorePermit,
}

impl BudgetPermit {
    /// Gives back what is not needed for `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let needed = bytes.div_ceil(UNIT_BYTES).max(1);
        let spare = self.room.num_permits().saturating_sub(needed);
        drop(self.room.split(spare));
    }
}

impl Budget {
    /// A budget of `limit_bytes`, at least 1 KiB.
    pub fn new(limit_bytes: u64) -> Self {
        let units = usize::try_from(limit_bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
        let units = units.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let limit_units = u32::try_from(units).unwrap_or(u32::MAX);
        Self {
            units: Arc::new(Semaphore::new(units)),
            limit_units,
        }
    }

    /// Waits until there is room for `bytes`. What is larger than the budget gets all of it.
    pub async fn acquire(&self, bytes: usize) -> Option<BudgetPermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.limit_units);
        // The semaphore is never closed.
        let room = Arc::clone(&self.units)
            .acquire_many_owned(units)
            .await
            .ok()?;
        Some(BudgetPermit { room })
    }

    /// Waits at most `wait_max` for room for `bytes`.
    pub async fn acquire_within(
        &self,
        bytes: usize,
        wait_max: Duration,
    ) -> Result<BudgetPermit, EdgeRefusal> {
        let waited = tokio::time::timeout(wait_max, self.acquire(bytes)).await;
        waited
            .ok()
            .flatten()
            .ok_or_else(|| EdgeRefusal::BuffersFull {
                limit_bytes: u64::from(self.limit_units) * UNIT_BYTES as u64,
                retry_after: RETRY_AFTER,
            })
    }

    /// Bytes that are free, to the unit.
    pub fn free_bytes(&self) -> usize {
        self.units.available_permits().saturating_mul(UNIT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_is_refused_while_it_is_taken_and_given_back_when_dropped() {
        let budget = Budget::new(10 * 1024);
        let taken = budget.acquire(9 * 1024).await.unwrap();
        assert_eq!(budget.free_bytes(), 1024);
        let refused = budget
            .acquire_within(2 * 1024, Duration::from_secs(1))
            .await
            .unwrap_err();
        assert!(matches!(
            refused,
            EdgeRefusal::BuffersFull {
                limit_bytes: 10_240,
                ..
            }
        ));
        drop(taken);
        budget
            .acquire_within(2 * 1024, Duration::from_secs(1))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_permit_shrinks_to_what_is_needed_and_never_grows() {
        let budget = Budget::new(10 * 1024);
        let mut taken = budget.acquire(8 * 1024).await.unwrap();
        taken.shrink_to(9 * 1024);
        assert_eq!(budget.free_bytes(), 2 * 1024);
        taken.shrink_to(1025);
        assert_eq!(budget.free_bytes(), 8 * 1024);
        taken.shrink_to(0);
        assert_eq!(budget.free_bytes(), 9 * 1024);
    }

    #[tokio::test]
    async fn what_is_larger_than_the_budget_gets_all_of_it() {
        let budget = Budget::new(4096);
        let _whole = budget.acquire(1 << 30).await.unwrap();
        assert_eq!(budget.free_bytes(), 0);
    }
}
