//! Tests of Varvelog as a whole, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "all of this crate is tests: it fails loudly and tells its seeds"
)]

mod crashes;
mod deliveries;
mod effects;
mod flights;
mod kills;
mod metrics;
mod program;
mod tidy;
