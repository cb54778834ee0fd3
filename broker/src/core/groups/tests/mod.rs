//! The machine against real durable state, with clocks set by hand.

mod delivery;
mod leases;
mod membership;
mod model;
mod property;
mod returns;
mod rig;
mod settlement;
