//! While the broker refuses producers: what is given up, and what the handles are told.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::error::SendError;
use super::pipeline::Pipeline;
use crate::error::CallError;

/// The last refusal since the last success, shared.
#[derive(Debug, Clone, Default)]
pub(super) struct Pressure(Arc<Mutex<Option<CallError>>>);

impl Pressure {
    /// Tells the refusal, or that there is none.
    pub(super) fn set(&self, error: Option<&CallError>) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_some() || shared.is_some() {
            *shared = error.cloned();
        }
    }

    /// Why the broker takes nothing, if it does not.
    pub(super) fn get(&self) -> Option<CallError> {
        let shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone()
    }
}

impl<T> Pipeline<T> {
    /// When the oldest batch is given up if the broker goes on to refuse; none while it is out.
    pub(super) fn pressed_out_at(&self) -> Option<Instant> {
        let (since, _) = self.pressed.as_ref()?;
        let (id, (partition, deadline)) = self.unsettled.first_key_value()?;
        let batch = self.lanes.get(partition)?.get(*id)?;
        let pushed = *deadline - self.config.delivery_timeout;
        (!batch.in_flight).then(|| pushed.max(*since) + self.config.max_block)
    }

    /// Give up what the broker has refused for too long.
    pub(super) fn give_up_pressed(&mut self, now: Instant) {
        while let Some(at) = self.pressed_out_at().filter(|at| *at <= now)
            && let Some((_, error)) = self.pressed.clone()
            && let Some((&id, &(partition, _))) = self.unsettled.first_key_value()
        {
            let batch = self.lanes.get(&partition).and_then(|lane| lane.get(id));
            let may_have_applied = batch.is_some_and(|batch| batch.unknown);
            let waited = self.config.max_block + (now - at);
            let refused = SendError::Backpressure {
                waited,
                error,
                may_have_applied,
            };
            self.fail(partition, id, refused);
        }
    }
}
