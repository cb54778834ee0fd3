//! The machine against real durable state, with clocks set by hand.
//!
//! Scenarios by id, and where they are: here a test's name begins with the id.
//!
//! | Ids | Where |
//! | --- | --- |
//! | T01, T18 | `settlement` |
//! | T02, T03, T04, T17, T19, T20, B43 | `leases` |
//! | T05, T06, T09 to T16, T18, T19, T21 | `retrying` |
//! | T07, T08, T41 | the policy's own tests, beside `core::retry_policy` and `core::policy_check` |
//! | T22 to T24 | were dropped: a move is one command |
//! | T25, T27 | the crash tests of the durable state |
//! | T26, T28, T29, T30, T34, T38, T40, T42, B40, B41, B42 | `broker_life` |
//! | T31, T32, T33 | `holding` |
//! | T35, T36, T37 | the tests of the copier |
//! | T39 | `delivery` |
//! | B34, B35, B38 | `membership` |
#![expect(
    clippy::wildcard_enum_match_arm,
    clippy::similar_names,
    reason = "tests name what they expect, and all else fails"
)]

mod broker_life;
mod circumstances;
mod costs;
mod delivery;
mod holding;
mod leases;
mod membership;
mod model;
mod model_checks;
mod model_operators;
mod model_steps;
mod overtaken;
mod parking;
mod positions;
mod property;
mod retrying;
mod returns;
mod rig;
mod rig_copies;
mod rig_members;
mod settlement;
