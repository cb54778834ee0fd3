//! `varvelog serve`: the broker, until it is told to stop.

use std::io::{self, Write as _};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use varvelog_broker::{BrokerHandle, StartError, StopError, start};

use crate::config::{SourceArgs, load};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Prints `varvelog ready grpc=... http=... data=...` once it is ready; everything \
                  else goes to standard error. SIGTERM and Ctrl-C stop it cleanly, a second one at \
                  once. Exit codes: 0 stopped cleanly, 2 configuration or a folder that cannot be \
                  used, 4 folder in use, 65 damage that it will not start on, 74 a failed sync."
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
        () = stop.next() => {
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
    if exit == Exit::Damage {
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
