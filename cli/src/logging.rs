//! The program's own log, on standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;
use varvelog_broker::config::{LogFormat, LogSettings};

use crate::failure::Failure;

/// For commands that talk to a broker: nothing unless asked for.
pub(crate) fn start_for_commands(verbose: u8) {
    let filter = match verbose {
        0 => return,
        1 => "warn,varvelog=info,varvelog_client=info",
        2 => "info,varvelog=debug,varvelog_client=debug",
        _ => "trace",
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .finish();
    // A program that uses this crate as a library may log its own way already.
    drop(subscriber.try_init());
}

/// For the broker, as its configuration says.
pub(crate) fn start_for_broker(settings: &LogSettings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(|error| {
        Failure::usage(format!("`log.filter` is {:?}: {error}", settings.filter))
    })?;
    let terminal = io::stderr().is_terminal();
    let human = match settings.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    if human {
        drop(builder.with_ansi(terminal).finish().try_init());
    } else {
        drop(builder.json().flatten_event(true).finish().try_init());
    }
    Ok(())
}
