//! The style of the house, as a test.

mod rules;
mod sources;
mod workspace;

pub(crate) use sources::root;
