//! Ctrl-C and SIGTERM, counted.

use std::convert::Infallible;
use std::future::pending;

use tokio::sync::watch;

use crate::failure::Failure;
use crate::serve::StopSignals;

/// How often this program was told to end, 0 to 2. From then on the signals do nothing else.
#[derive(Clone, Debug)]
pub(super) struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// The count, and what counts while it is polled.
    pub(super) fn watch() -> Result<(Self, impl Future<Output = Infallible>), Failure> {
        let mut signals = StopSignals::watch()?;
        let (count, counted) = watch::channel(0);
        let counting = async move {
            signals.next().await;
            count.send_replace(1);
            signals.insisted().await;
            count.send_replace(2);
            pending().await
        };
        Ok((Self(counted), counting))
    }

    /// Returns once there were so many.
    pub(super) async fn at_least(&self, times: u32) {
        let mut counted = self.0.clone();
        if counted.wait_for(|count| *count >= times).await.is_err() {
            // Nobody counts any more, so none will come.
            pending::<()>().await;
        }
    }
}
