//! Topics, and what came and went.

use super::family::{Family, Kind};
use crate::service::context::Context;
use crate::traffic::{Traffic, TrafficCounts};
use crate::view::TopicView;

/// The families of topics. Nothing here asks the core.
pub(super) fn families(context: &Context) -> Vec<Family> {
    let catalog = context.view().catalog();
    let topics: Vec<&TopicView> = catalog.by_name.values().map(AsRef::as_ref).collect();
    let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
    let bytes = |topic: &TopicView| {
        let each = topic.partitions.iter();
        each.map(|one| one.reader.bytes())
            .fold(0, u64::saturating_add)
    };
    let segments = |topic: &TopicView| {
        let each = topic.partitions.iter();
        count(each.map(|one| one.reader.segments().len()).sum())
    };
    let gauge = |name, help, value: &dyn Fn(&TopicView) -> u64| {
        let mut family = Family::new(Kind::Gauge, name, help);
        for topic in &topics {
            family.add(labels(topic), value(topic));
        }
        family
    };
    let traffic = |name, help, value: &dyn Fn(TrafficCounts) -> u64| {
        let mut family = Family::new(Kind::Counter, name, help);
        for topic in &topics {
            family.add(labels(topic), value(topic.traffic.counts()));
        }
        family
    };
    let mut families = vec![
        gauge("varvelog_topic_bytes", "Bytes that the topic takes", &bytes),
        gauge(
            "varvelog_topic_segments",
            "Segments of the topic",
            &segments,
        ),
        gauge(
            "varvelog_topic_partitions",
            "Partitions of the topic",
            &|topic| count(topic.partitions.len()),
        ),
        traffic("varvelog_records_in", "Records committed", &|it| {
            it.records_in
        }),
        traffic(
            "varvelog_bytes_in",
            "Bytes of requests that brought records",
            &|it| it.bytes_in,
        ),
        traffic(
            "varvelog_records_out",
            "Records handed to the transport",
            &|it| it.records_out,
        ),
        traffic(
            "varvelog_bytes_out",
            "Bytes of replies that carried records",
            &|it| it.bytes_out,
        ),
    ];
    families.extend(refusals(&topics));
    families
}

/// Produce requests by why they were refused, or would have been.
fn refusals(topics: &[&TopicView]) -> [Family; 2] {
    [
        by_reason(
            topics,
            (
                "varvelog_produce_refused",
                "Produce requests that were refused, by reason",
            ),
            Traffic::refused,
        ),
        by_reason(
            topics,
            (
                "varvelog_produce_observed",
                "Produce requests that would have been refused if their group did not only observe",
            ),
            Traffic::observed,
        ),
    ]
}

fn labels(topic: &TopicView) -> Vec<(&'static str, String)> {
    vec![("topic", topic.name.to_string())]
}

fn by_reason(
    topics: &[&TopicView],
    (name, help): (&'static str, &'static str),
    counts: impl Fn(&Traffic) -> std::collections::BTreeMap<&'static str, u64>,
) -> Family {
    let mut family = Family::new(Kind::Counter, name, help);
    for topic in topics {
        for (reason, count) in counts(&topic.traffic) {
            let mut labels = labels(topic);
            labels.push(("reason", reason.to_owned()));
            family.add(labels, count);
        }
    }
    family
}
