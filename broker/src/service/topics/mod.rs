//! `TopicService`.

mod service;
mod settings;
mod shown;

pub(super) use service::Topics;
pub(super) use settings::unknown_path;
pub(super) use shown::timestamp;
