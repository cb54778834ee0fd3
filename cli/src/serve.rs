//! `varvelog serve`: the broker, until it is told to stop.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use varvelog_broker::core::recover::RecoverError;
use varvelog_broker::{BrokerHandle, StartError, StopError, start};
use varvelog_store::wal::WalError;

use crate::config::{SourceArgs, load};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Prints `varvelog ready grpc=... http=... data=...` once it is ready; everything \
                  else goes to standard error. SIGTERM and Ctrl-C stop it cleanly, a second one \
                  (more than 1 s later) at once. Exit codes: 0 stopped cleanly, 2 configuration \
                  or a folder that cannot be used, 4 folder in use, 65 damage that it will not \
                  start on, 74 a failed sync."
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) async fn run(args: ServeArgs, _context: &mut Context) -> Result<(), Failure> {
    let config = load(&args.sources)?;
    logging::start_for_broker(&config.log)?;
    if config.insecure {
        tracing::warn!("insecure is set: neither TLS nor authentication protects this broker");
    }
    let mut stop = StopSignals::watch()?;
    let broker = tokio::select! {
        started = start(config) => started.map_err(|error| start_failure(&error))?,
        () = stop.next() => return Ok(()),
    };
    announce(&broker)?;
    tokio::select! {
        () = stop.next() => {}
        failure = broker.failed() => return Err(fenced(&failure)),
    }
    tracing::info!("stopping");
    tokio::select! {
        stopped = broker.stop() => stopped.map_err(|error| stop_failure(&error)),
        () = stop.insisted() => {
            Err(Failure::new(Exit::Interrupted, "stopped at once; the next start recovers"))
        }
    }
}

/// The line that supervisors and scripts wait for.
fn announce(broker: &BrokerHandle) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "varvelog ready grpc={} http={} data={}",
        broker.grpc_addr(),
        broker.http_addr(),
        broker.data_dir().display()
    )?;
    Ok(stdout.flush()?)
}

/// A supervisor may signal the program and its group at once: what comes within this time of the
/// first signal is the same wish.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Waits for a signal that comes later than [`ONE_WISH`] from now.
async fn after_one_wish(mut next: impl AsyncFnMut()) {
    let over = tokio::time::sleep(ONE_WISH);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = next() => {}
            () = &mut over => break,
        }
    }
    next().await;
}

/// SIGTERM and SIGINT.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn watch() -> Result<Self, Failure> {
        let watched =
            |kind| signal(kind).map_err(|error| Failure::io("cannot watch for signals", &error));
        Ok(Self {
            terminate: watched(SignalKind::terminate())?,
            interrupt: watched(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// A further signal, after the first, that is not the same wish.
    pub(crate) async fn insisted(&mut self) {
        after_one_wish(async || self.next().await).await;
    }
}

pub(crate) fn start_failure(error: &StartError) -> Failure {
    let exit = match error.exit_code() {
        2 => Exit::Usage,
        4 => Exit::Conflict,
        65 => Exit::Damage,
        74 => Exit::SyncFailed,
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, error.to_string());
    let is_log_gone = matches!(
        error,
        StartError::Recover {
            source: RecoverError::Wal(WalError::Missing { .. }),
            ..
        }
    );
    if is_log_gone {
        failure.hint(
            "restore the files of the folder's wal; or, without what they held: \
             varvelog log repair FOLDER --from-checkpoint",
        )
    } else if exit == Exit::Damage {
        failure.hint("varvelog log verify FOLDER")
    } else if exit == Exit::Conflict {
        failure.hint("--data-dir for another folder, or stop the other broker")
    } else {
        failure
    }
}

pub(crate) fn stop_failure(error: &StopError) -> Failure {
    let exit = match error {
        StopError::Core(_) => Exit::SyncFailed,
        StopError::Panicked | StopError::Mark(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

pub(crate) fn fenced(why: &str) -> Failure {
    Failure::new(Exit::SyncFailed, format!("the broker ended itself: {why}"))
        .hint("see that the disk is sound, then start again")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;
    use crate::clock::Since;

    #[tokio::test(start_paused = true)]
    async fn signals_of_one_second_are_one_wish() {
        let (signals, mut signalled) = mpsc::channel(8);
        let began = Since::now();
        let waiting = after_one_wish(async || {
            signalled.recv().await;
        });
        let sending = async {
            for wait_ms in [0, 0, 999, 2, 5000] {
                sleep(Duration::from_millis(wait_ms)).await;
                signals.send(()).await.unwrap();
            }
        };
        tokio::select! {
            () = waiting => {}
            () = async { sending.await; std::future::pending().await } => {}
        }
        assert_eq!(began.passed(), Duration::from_millis(1001));
    }
}
