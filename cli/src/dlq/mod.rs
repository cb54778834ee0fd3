//! `varvelog dlq`: records that no delivery could get processed.

mod audit;
mod command;
mod discard;
mod export;
mod filter;
mod job_views;
mod jobs;
mod list;
mod pages;
mod replay;
mod show;
mod stats;
mod tail;
mod views;

pub(crate) use command::{Command, run};
