//! The durable state: what applying every committed command gives.

/// Durable state.
#[derive(Debug, Default)]
pub struct State {}
