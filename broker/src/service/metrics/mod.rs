//! The page of metrics (`/metrics`), in the text format of `OpenMetrics`. What is a state is looked
//! at when the page is asked for, so that series end with what they are about.
//!
//! Source of the format: `OpenMetrics` 1.0.

mod broker;
mod dead_letters;
mod family;
mod page;
mod process;
mod topics;

pub(super) use family::{Family, Kind, Labels};
pub(super) use page::router;
