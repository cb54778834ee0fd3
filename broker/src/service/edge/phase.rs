//! Whether the edge works, drains or is over, told to everything on it.

use tokio::sync::watch;

/// What the edge is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Recovery is not done: the ports answer, the services do not.
    Starting,
    /// Serving.
    Serving,
    /// Nothing new is taken; long waits and streams end with a status.
    Draining,
    /// Whatever is left is cut.
    Over,
}

/// Tells the phase. It only ever moves forward.
#[derive(Debug)]
pub struct PhaseSender(watch::Sender<Phase>);

/// Follows the phase.
#[derive(Debug, Clone)]
pub struct PhaseWatch(watch::Receiver<Phase>);

impl PhaseSender {
    /// A sender and its watch.
    pub fn new(phase: Phase) -> (Self, PhaseWatch) {
        let (sender, receiver) = watch::channel(phase);
        (Self(sender), PhaseWatch(receiver))
    }

    /// Moves on to `phase`, unless it is past.
    pub fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            let moves = phase > *current;
            if moves {
                *current = phase;
            }
            moves
        });
    }
}

impl PhaseWatch {
    /// The phase now.
    pub fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until `phase` is reached. A sender that is gone means that all is over.
    pub async fn reached(&self, phase: Phase) {
        drop(self.0.clone().wait_for(|current| *current >= phase).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_phase_moves_forward_only_and_wakes_who_waits() {
        let (sender, watch) = PhaseSender::new(Phase::Serving);
        let waiting = tokio::spawn({
            let watch = watch.clone();
            async move { watch.reached(Phase::Draining).await }
        });
        sender.advance(Phase::Over);
        waiting.await.unwrap();
        sender.advance(Phase::Serving);
        assert_eq!(watch.now(), Phase::Over);
    }

    #[tokio::test]
    async fn a_sender_that_is_gone_means_that_all_is_over() {
        let (sender, watch) = PhaseSender::new(Phase::Serving);
        drop(sender);
        watch.reached(Phase::Over).await;
    }
}
