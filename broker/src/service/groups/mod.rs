//! `GroupAdminService`.

mod admission;
mod advice;
mod gate_metrics;
mod lags;
mod metrics;
mod numbers;
mod offsets;
mod open_records;
mod operate;
mod retries;
mod retry_config;
mod retry_texts;
mod service;
mod settings;
mod shown;
mod snapshot;
mod stalls;
mod tallied;
mod trend;
mod waiting;

pub(super) use advice::{Advices, load};
pub(super) use metrics::metrics;
pub(super) use retry_texts::read as failure_texts;
pub(super) use service::GroupAdmin;
pub(super) use shown::worst;
pub(super) use trend::{Trends, watch_trends};
