//! The `varvelog` program: broker, client and tools in one binary.
//!
//! Each command is one file (or folder) with its arguments and what it does; `args` is the tree
//! of them. Data goes to standard output, everything else to standard error; `exit` lists what
//! the exit code says.

mod args;
mod clock;
mod cluster;
mod completions;
mod config;
mod confirm;
mod connect;
mod consume;
mod context;
mod demo;
mod dlq;
mod exit;
mod failure;
mod group;
mod log;
mod logging;
mod man;
mod output;
mod parse;
mod produce;
mod proto;
mod retry;
mod run;
mod serve;
mod tail;
mod topic;

pub use run::{command, main};
