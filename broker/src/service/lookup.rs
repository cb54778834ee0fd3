//! Names and numbers of requests, resolved against the catalog.

use std::sync::Arc;

use super::status::{CallFailure, FieldViolation, LookupRefusal};
use crate::core::refusal::TopicRefusal;
use crate::names::{GroupName, NameError, TopicName};
use crate::view::{Catalog, PartitionView, TopicView, View};

/// How like a name must be to be named in a refusal.
const LIKENESS_MIN: f64 = 0.6;
/// Names that are compared, at most: a refusal must stay cheap.
const COMPARED_MAX: usize = 256;

/// A name of a topic as a request has it.
pub(super) fn topic_name(field: &str, name: &str) -> Result<TopicName, CallFailure> {
    TopicName::parse(name).map_err(|error| bad_name(field, name, &error))
}

/// A name of a group as a request has it.
pub(super) fn group_name(field: &str, name: &str) -> Result<GroupName, CallFailure> {
    GroupName::parse(name).map_err(|error| bad_name(field, name, &error))
}

fn bad_name(field: &str, name: &str, error: &NameError) -> CallFailure {
    let limit = match error {
        NameError::TooLong { limit, .. } => limit.to_string(),
        NameError::Character { allowed, .. } => format!("[{allowed}]"),
        NameError::Empty | NameError::Reserved { .. } => String::new(),
    };
    let shown: String = name.chars().take(64).collect();
    FieldViolation::bound(field, limit, shown, error.to_string()).into()
}

/// A topic that must be there.
pub(super) fn topic(view: &View, field: &str, name: &str) -> Result<Arc<TopicView>, CallFailure> {
    let name = topic_name(field, name)?;
    let catalog = view.catalog();
    let found = catalog.by_name.get(&name).cloned();
    found.ok_or_else(|| missing_topic(&catalog, &name))
}

fn missing_topic(catalog: &Catalog, name: &TopicName) -> CallFailure {
    let names = catalog.by_name.keys().map(TopicName::as_str);
    let nearest = nearest(name.as_str(), names).map(str::to_owned);
    let name = name.to_string();
    LookupRefusal::Topic { name, nearest }.into()
}

/// A topic that users may change: not a retry or dead-letter topic.
pub(super) fn own_topic(
    view: &View,
    field: &str,
    name: &str,
) -> Result<Arc<TopicView>, CallFailure> {
    let found = topic(view, field, name)?;
    match &found.derived {
        Some(group) => {
            let (topic, group) = (found.name.to_string(), group.to_string());
            Err(TopicRefusal::Derived { topic, group }.into())
        }
        None => Ok(found),
    }
}

/// A partition that must be there.
pub(super) fn partition<'a>(
    topic: &'a TopicView,
    field: &str,
    number: i32,
) -> Result<&'a PartitionView, CallFailure> {
    let Ok(index) = usize::try_from(number) else {
        return Err(FieldViolation::bound(field, 0, number, "must not be negative").into());
    };
    topic.partitions.get(index).ok_or_else(|| {
        let partition = i64::from(number);
        let (topic, partitions) = (topic.name.to_string(), partition_count(topic));
        TopicRefusal::PartitionNotFound {
            topic,
            partition,
            partitions,
        }
        .into()
    })
}

/// How many partitions a topic has.
pub(super) fn partition_count(topic: &TopicView) -> u32 {
    u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX)
}

/// The refusal of a group that is not among `names`.
pub(super) fn missing_group<'a>(
    name: &GroupName,
    names: impl Iterator<Item = &'a str>,
) -> LookupRefusal {
    let nearest = nearest(name.as_str(), names).map(str::to_owned);
    let name = name.to_string();
    LookupRefusal::Group { name, nearest }
}

/// The refusal of a queue that is not among `names`.
pub(super) fn missing_queue<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> LookupRefusal {
    LookupRefusal::Queue {
        name: name.to_owned(),
        nearest: nearest(name, names).map(str::to_owned),
    }
}

/// The name that looks most like `wanted`, if one looks like it at all.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_near = |name: &&str| wanted.len().abs_diff(name.len()) * 2 <= wanted.len();
    names
        .filter(is_near)
        .take(COMPARED_MAX)
        .map(|name| (strsim::normalized_damerau_levenshtein(wanted, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
