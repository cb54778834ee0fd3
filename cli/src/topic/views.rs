//! Topics as people and programs read them.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_proto::v1;

use crate::group::{group_age, group_status};
use crate::output::{Block, View, show_age, show_bytes, show_count, show_text, show_time, to_json};

/// A list.
pub(super) fn topics_view(topics: &[v1::Topic], zone: &TimeZone) -> View {
    let row = |topic: &v1::Topic| {
        let config = topic.config.clone().unwrap_or_default();
        vec![
            topic.name.clone(),
            show_count(topic.partitions.into()),
            show_bytes(topic.size_bytes),
            show_retention(&config),
            show_time(topic.create_time.as_ref(), zone),
        ]
    };
    let items: Vec<Value> = topics.iter().map(|topic| to_json("Topic", topic)).collect();
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header: vec!["TOPIC", ">PARTITIONS", ">SIZE", "RETENTION", "CREATED"],
            rows: topics.iter().map(row).collect(),
        }],
        json: json!({ "topics": items }),
        items,
        names: topics.iter().map(|topic| topic.name.clone()).collect(),
    }
}

/// One topic, its partitions where they are known, and the groups that read it.
pub(crate) fn topic_view(topic: &v1::Topic, groups: &[v1::Group], zone: &TimeZone) -> View {
    let config = topic.config.clone().unwrap_or_default();
    let mut labels: Vec<_> = config.labels.iter().collect();
    labels.sort_unstable();
    let labels: Vec<String> = labels
        .into_iter()
        .map(|(name, value)| show_text(format!("{name}={value}").as_bytes()))
        .collect();
    let records: i64 = topic
        .status
        .iter()
        .map(|status| status.latest_offset - status.earliest_offset)
        .sum();
    let mut pairs = vec![
        ("topic", topic.name.clone()),
        ("id", topic.id.clone()),
        ("partitions", show_count(topic.partitions.into())),
        ("size", show_bytes(topic.size_bytes)),
        ("retention", show_retention(&config)),
        ("segment", show_bytes(config.segment_bytes)),
        ("largest record", show_bytes(config.max_record_bytes.into())),
        (
            "message ids",
            show_window(config.message_id_window.as_ref()),
        ),
        ("labels", labels.join(", ")),
        ("created", show_time(topic.create_time.as_ref(), zone)),
    ];
    if !topic.status.is_empty() {
        pairs.insert(4, ("records", show_count(records)));
    }
    let mut blocks = vec![Block::Pairs(pairs)];
    if !topic.status.is_empty() {
        blocks.push(partitions_block(&topic.status, zone));
    }
    if !groups.is_empty() {
        blocks.push(groups_block(groups));
    }
    View::one(topic.name.clone(), to_json("Topic", topic), blocks)
}

/// What `delete` would take away.
pub(super) fn deletion_plan(plan: &[(v1::Topic, Vec<v1::Group>)]) -> View {
    let row = |(topic, groups): &(v1::Topic, Vec<v1::Group>)| {
        let records: i64 = topic
            .status
            .iter()
            .map(|s| s.latest_offset - s.earliest_offset)
            .sum();
        let groups: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        vec![
            topic.name.clone(),
            show_count(topic.partitions.into()),
            show_count(records),
            show_bytes(topic.size_bytes),
            if groups.is_empty() {
                String::from("-")
            } else {
                groups.join(", ")
            },
        ]
    };
    let items: Vec<Value> = plan
        .iter()
        .map(|(topic, _)| to_json("Topic", topic))
        .collect();
    View {
        blocks: vec![Block::Table {
            title: String::from("to be deleted:"),
            header: vec!["TOPIC", ">PARTITIONS", ">RECORDS", ">SIZE", "READ BY"],
            rows: plan.iter().map(row).collect(),
        }],
        json: json!({ "topics": items }),
        items,
        names: plan.iter().map(|(topic, _)| topic.name.clone()).collect(),
    }
}

/// The start of a partition before and after records are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) partition: i32,
    pub(super) earliest_before: i64,
    pub(super) earliest_after: i64,
    pub(super) latest: i64,
}

/// What `delete-records` takes away.
pub(super) fn cuts_view(topic: &str, cuts: &[Cut]) -> View {
    let row = |cut: &Cut| {
        vec![
            cut.partition.to_string(),
            cut.earliest_before.to_string(),
            cut.earliest_after.to_string(),
            cut.latest.to_string(),
            show_count(cut.earliest_after - cut.earliest_before),
        ]
    };
    let item = |cut: &Cut| {
        json!({
            "topic": topic,
            "partition": cut.partition,
            "oldEarliestOffset": cut.earliest_before.to_string(),
            "earliestOffset": cut.earliest_after.to_string(),
            "latestOffset": cut.latest.to_string(),
        })
    };
    let items: Vec<Value> = cuts.iter().map(item).collect();
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header: vec![
                "PARTITION",
                ">EARLIEST",
                ">NEW EARLIEST",
                ">LATEST",
                ">DELETED",
            ],
            rows: cuts.iter().map(row).collect(),
        }],
        json: json!({ "partitions": items }),
        items,
        names: cuts
            .iter()
            .map(|cut| format!("{topic}/{}", cut.partition))
            .collect(),
    }
}

fn partitions_block(status: &[v1::PartitionStatus], zone: &TimeZone) -> Block {
    let row = |status: &v1::PartitionStatus| {
        vec![
            status.partition.to_string(),
            status.earliest_offset.to_string(),
            status.latest_offset.to_string(),
            show_count(status.latest_offset - status.earliest_offset),
            show_bytes(status.size_bytes),
            status.epoch.to_string(),
            show_time(status.oldest_append_time.as_ref(), zone),
        ]
    };
    let header = vec![
        "PARTITION",
        ">EARLIEST",
        ">LATEST",
        ">RECORDS",
        ">SIZE",
        ">EPOCH",
        "OLDEST",
    ];
    Block::Table {
        title: String::new(),
        header,
        rows: status.iter().map(row).collect(),
    }
}

fn groups_block(groups: &[v1::Group]) -> Block {
    let row = |group: &v1::Group| {
        vec![
            group.name.clone(),
            group_status(group).to_owned(),
            show_count(group.total_lag),
            group_age(group),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec!["READ BY", "STATUS", ">LAG", ">OLDEST"],
        rows: groups.iter().map(row).collect(),
    }
}

fn show_retention(config: &v1::TopicConfig) -> String {
    let age = match config.retention_age.map(Duration::try_from) {
        None => Some(String::from("7days")),
        Some(Ok(Duration::ZERO)) => None,
        Some(Ok(age)) => Some(show_age(age)),
        Some(Err(_)) => Some(String::from("?")),
    };
    let bytes = Some(config.retention_bytes)
        .filter(|bytes| *bytes > 0)
        .map(show_bytes);
    match (age, bytes) {
        (None, None) => String::from("for ever"),
        (Some(age), None) => age,
        (None, Some(bytes)) => bytes,
        (Some(age), Some(bytes)) => format!("{age} or {bytes}"),
    }
}

fn show_window(window: Option<&prost_types::Duration>) -> String {
    match window.copied().map(Duration::try_from) {
        None | Some(Err(_)) => String::from("5m"),
        Some(Ok(Duration::ZERO)) => String::from("off"),
        Some(Ok(window)) => show_age(window),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> v1::Topic {
        let status = |partition, earliest_offset, latest_offset| v1::PartitionStatus {
            partition,
            earliest_offset,
            latest_offset,
            size_bytes: 1_500_000,
            epoch: 1,
            oldest_append_time: Some(prost_types::Timestamp {
                seconds: 979_397_760,
                nanos: 0,
            }),
        };
        v1::Topic {
            name: "flights".into(),
            id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            partitions: 2,
            config: Some(v1::TopicConfig {
                retention_age: Some(prost_types::Duration {
                    seconds: 604_800,
                    nanos: 0,
                }),
                segment_bytes: 128 << 20,
                max_record_bytes: 1 << 20,
                labels: [("team".into(), "air\u{1b}".into())].into(),
                ..v1::TopicConfig::default()
            }),
            create_time: Some(prost_types::Timestamp {
                seconds: 979_390_000,
                nanos: 0,
            }),
            size_bytes: 3_000_000,
            status: vec![status(0, 0, 12_345), status(1, 100, 7655)],
        }
    }

    fn group() -> v1::Group {
        v1::Group {
            name: "email".into(),
            status: v1::GroupStatus::Lagging.into(),
            total_lag: 1500,
            oldest_unprocessed_age: Some(prost_types::Duration {
                seconds: 3,
                nanos: 200_000_000,
            }),
            ..v1::Group::default()
        }
    }

    fn text(view: &View) -> String {
        view.to_text(str::to_owned)
    }

    #[test]
    fn a_topic_is_shown_with_partitions_and_groups() {
        insta::assert_snapshot!(text(&topic_view(&topic(), &[group()], &TimeZone::UTC)));
    }

    #[test]
    fn topics_are_listed_with_what_they_keep() {
        let mut forever = topic();
        forever.name = "a".into();
        let config = forever.config.as_mut().unwrap();
        config.retention_age = Some(prost_types::Duration::default());
        let view = topics_view(&[forever, topic()], &TimeZone::UTC);
        insta::assert_snapshot!(text(&view));
        assert_eq!(view.names, ["a", "flights"]);
    }

    #[test]
    fn the_json_of_a_topic_is_the_contract_s() {
        let json = topic_view(&topic(), &[], &TimeZone::UTC).json;
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
    }

    #[test]
    fn plans_say_what_goes() {
        insta::assert_snapshot!(text(&deletion_plan(&[(topic(), vec![group()])])));
        let cut = Cut {
            partition: 1,
            earliest_before: 100,
            earliest_after: 7655,
            latest: 7655,
        };
        insta::assert_snapshot!(text(&cuts_view("flights", &[cut])));
        insta::assert_snapshot!(cuts_view("flights", &[cut]).json.to_string());
    }
}
