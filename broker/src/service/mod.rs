//! The edge: takes calls off the network, checks their limits, submits them to the core and
//! encodes what comes back. Nothing here owns durable state.

pub mod edge;
pub mod status;
pub mod token;
pub mod transcode;
pub mod wire;

mod generated;
