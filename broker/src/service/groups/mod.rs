//! `GroupAdminService`.

mod lags;
mod offsets;
mod service;
mod settings;
mod shown;
mod snapshot;

pub(super) use service::GroupAdmin;
pub(super) use shown::worst;
