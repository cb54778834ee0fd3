//! `varvelog log`: what is in a data folder, read without a broker. Only `repair` changes anything.

mod command;
mod dump;
mod folder;
mod index;
mod repair;
mod verify;
mod views;

#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;

pub(crate) use command::{Command, run};
