//! Whether there may be more of something.

use super::decide::CountLimits;
use super::refusal::{QuotaRefusal, Refusal};
use super::state::State;

/// Refuses `more` partitions of topics that users made, beyond the limit.
pub(super) fn check_partitions(
    state: &State,
    more: u32,
    limits: &CountLimits,
) -> Result<(), Refusal> {
    let current = state.topics.counts().partitions;
    check("partitions", current, more.into(), limits.partitions)
}

/// Refuses `more` beyond the limit. None more is always let through.
pub(super) fn check(
    what: &'static str,
    current: u64,
    more: u64,
    limit: u64,
) -> Result<(), Refusal> {
    if more == 0 || current.saturating_add(more) <= limit {
        return Ok(());
    }
    Err(QuotaRefusal {
        what,
        limit,
        current,
    }
    .into())
}
