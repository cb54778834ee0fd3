//! The `varvelog` program: broker, client and tools in one binary.
//!
//! Each command is one file (or folder) with its arguments and what it does; [`Cli`] is the tree
//! of them. Data goes to standard output, everything else to standard error; [`Exit`] is what
//! the exit code says.

mod args;
mod clock;
mod cluster;
mod completions;
mod config;
mod confirm;
mod connect;
mod context;
mod exit;
mod failure;
mod group;
mod logging;
mod man;
mod output;
mod parse;
mod proto;
mod run;
mod tail;
mod topic;

pub use args::{Cli, Command, Global};
pub use connect::{Connection, Server};
pub use exit::Exit;
pub use failure::Failure;
pub use run::main;
