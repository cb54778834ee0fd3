//! The machine against real durable state, with clocks set by hand.

mod delivery;
mod leases;
mod membership;
mod model;
mod model_checks;
mod positions;
mod property;
mod returns;
mod rig;
mod settlement;
