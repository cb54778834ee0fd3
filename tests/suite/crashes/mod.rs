//! Crashes on the simulated disk: after a power loss at every operation of every scenario, in every
//! state that the disk may be left in, the broker starts, everything acknowledged is there, and
//! nothing is there that nobody sent.
//!
//! The same engine, flusher and recovery as in the broker, driven without threads.

mod damage;
mod deliveries;
mod enumerate;
mod gone;
mod model;
mod replays;
mod scenarios;
mod sweep;
mod world;
