//! The Varvelog broker: one owner of all state, thin edges.

pub mod config;
