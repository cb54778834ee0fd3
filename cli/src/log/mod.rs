//! `varvelog log`: what is in a data folder, read without a broker. Nothing is changed.

mod command;
mod dump;
mod folder;
mod index;
mod verify;
mod views;

#[cfg(test)]
mod tests;

pub(crate) use command::{Command, run};
