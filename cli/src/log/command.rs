//! The commands below `varvelog log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{dump, index, repair, verify};
use crate::context::Context;
use crate::failure::Failure;

/// Below `log`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Check every byte that was flushed and the write-ahead log; exit code 65 if any is damaged
    Verify(verify::VerifyArgs),
    /// Print the records or batches of a partition
    Dump(dump::DumpArgs),
    /// List the segments of partitions with their index files
    Index(index::IndexArgs),
    /// Give up a write-ahead log that is damaged or gone, and start from the newest checkpoint
    Repair(repair::RepairArgs),
}

/// Which data.
#[derive(Args, Clone, Debug)]
pub(crate) struct FolderArgs {
    /// The data folder; no broker may be using it
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    // The disk blocks, and nothing else is going on.
    match command {
        Command::Verify(args) => verify::run(&args, context),
        Command::Dump(args) => dump::run(&args, context),
        Command::Index(args) => index::run(&args, context),
        Command::Repair(args) => repair::run(&args, context),
    }
}
