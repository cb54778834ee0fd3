//! `TopicService`.

mod service;
mod settings;
mod shown;

pub(super) use service::Topics;
