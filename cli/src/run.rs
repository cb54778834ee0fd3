//! From the command line to the exit code.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::complain;
use crate::{
    cluster, completions, config, consume, demo, dlq, group, log, logging, man, produce, proto,
    retry, serve, tail, topic,
};

/// Parses the command line, does what it says, and prints why it could not.
pub fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    if !matches!(command, Command::Serve(_) | Command::Demo(_)) {
        logging::start_for_commands(global.verbose);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("error: cannot start: {error}"));
            return Exit::Failed.into();
        }
    };
    let result = runtime.block_on(dispatch(command, Context::new(global)));
    // A thread that still waits for standard input must not hold up the end.
    runtime.shutdown_background();
    match result {
        Ok(()) => Exit::Fine.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                complain(&failure.to_string());
            }
            failure.exit.into()
        }
    }
}

/// The definition of the command line.
pub fn command() -> clap::Command {
    Cli::command()
}

async fn dispatch(command: Command, mut context: Context) -> Result<(), Failure> {
    let context = &mut context;
    match command {
        Command::Serve(args) => serve::run(args, context).await,
        Command::Demo(args) => demo::run(args, context).await,
        Command::Topic(command) => topic::run(command, context).await,
        Command::Produce(args) => produce::run(args, context).await,
        Command::Consume(args) => consume::run(args, context).await,
        Command::Tail(args) => tail::run(args, context).await,
        Command::Group(command) => group::run(command, context).await,
        Command::Retry(command) => retry::run(command, context).await,
        Command::Dlq(command) => dlq::run(command, context).await,
        Command::Cluster(command) => cluster::run(command, context).await,
        Command::Log(command) => log::run(command, context).await,
        Command::Config(command) => config::run(command, context).await,
        Command::Proto(args) => proto::run(&args, context).await,
        Command::Completions(args) => completions::run(&args, context),
        Command::Man(args) => man::run(&args, context).await,
    }
}
