//! `varvelog produce`: records from lines of text.

mod command;
mod input;
mod lines;
mod sink;
mod summary;

pub(crate) use command::{ProduceArgs, run};
