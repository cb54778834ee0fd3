//! `varvelog demo`: a broker in a temporary folder, with real traffic through it.

mod command;
mod flights;
mod readers;

pub(crate) use command::{DemoArgs, run};
