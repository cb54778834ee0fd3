//! The tree of commands and the options that all of them take.

use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::output::Format;
use crate::{
    cluster, completions, config, consume, demo, dlq, group, log, man, parse, produce, proto,
    retry, serve, tail, topic,
};

/// A commit log with the manners of a work queue, in one binary.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "varvelog",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 fine, 1 failure, 2 usage, 3 not found, 4 precondition or \
                  conflict, 5 unavailable, 6 denied, 7 timeout, 8 partly failed, 10 unhealthy, \
                  65 damaged data, 74 failed sync, 130 interrupted."
)]
pub(crate) struct Cli {
    /// For every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The broker: host:port or a URL
    #[arg(
        long,
        global = true,
        env = "VARVELOG_SERVER",
        default_value = "127.0.0.1:7461",
        value_name = "HOST:PORT"
    )]
    pub(crate) server: String,
    /// How long one call may take
    #[arg(
        long,
        global = true,
        env = "VARVELOG_TIMEOUT",
        default_value = "30s",
        value_parser = parse::duration,
        value_name = "DURATION"
    )]
    pub(crate) timeout: Duration,
    /// Form of the output; table on a terminal, else jsonl
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// No colours; `NO_COLOR` does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Only errors on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// More on standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Every command.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the broker
    Serve(serve::ServeArgs),
    /// Run a broker in a temporary folder with real traffic through it
    Demo(demo::DemoArgs),
    /// Make, show, change and delete topics
    #[command(subcommand)]
    Topic(topic::Command),
    /// Append records, one a line, from standard input or a file
    Produce(produce::ProduceArgs),
    /// Show the last records of topics and follow them
    Tail(tail::TailArgs),
    /// Read records in a group, and settle them
    Consume(consume::ConsumeArgs),
    /// Make, show, change, move and delete consumer groups
    #[command(subcommand)]
    Group(group::Command),
    /// Show records that wait to be given out again, and hurry them
    #[command(subcommand)]
    Retry(retry::Command),
    /// Show what no delivery could get processed, and why
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Ask the broker about itself
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Look into a data folder, without a broker
    #[command(subcommand)]
    Log(log::Command),
    /// Check and show the broker's configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Write the API contract, the .proto files, to a folder
    Proto(proto::ProtoArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write all of them to a folder
    Man(man::ManArgs),
}
