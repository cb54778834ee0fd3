//! `GroupAdminService`.

mod lags;
mod offsets;
mod service;
mod settings;
mod shown;
mod snapshot;
mod trend;

pub(super) use service::GroupAdmin;
pub(super) use shown::worst;
pub(super) use trend::{Trends, watch_trends};
