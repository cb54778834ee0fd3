//! From sockets to calls: one acceptor, one single-threaded runtime for each edge, and on each
//! connection the limits that keep one client from harming the others.
//!
//! What does not follow the framing of gRPC never reaches a service ([`Framed`]), a deadline ends
//! the call that carries it, and every call can ask how its connection is doing
//! ([`ConnectionGuard`]).

mod acceptor;
mod body;
mod budget;
mod calls;
mod connection;
mod counts;
mod deadline;
mod guard;
mod methods;
mod phase;
mod runtime;
mod seats;

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod listener_tests;

pub use acceptor::AcceptLimits;
pub use body::{FrameLimits, Framed};
pub use budget::{Budget, BudgetPermit};
pub use connection::ConnectionLimits;
pub use counts::PortCounts;
pub use guard::{ConnectionEnd, ConnectionGuard, Peer};
pub use methods::{MethodShape, Methods};
pub use phase::{Phase, PhaseSender, PhaseWatch};
pub use runtime::{EdgeHandle, EdgeParts, open_edges, serve_aside};
