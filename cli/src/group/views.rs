//! Groups as people and programs read them.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_proto::v1;

use super::config_view::{config_block, mode};
use crate::output::{Block, View, show_age, show_count, show_text, show_time, to_json};

/// The age of the oldest record not done.
pub(crate) fn group_age(group: &v1::Group) -> String {
    show_duration(group.oldest_unprocessed_age.as_ref())
}

/// Its status in one word.
pub(crate) fn group_status(group: &v1::Group) -> &'static str {
    match group.status() {
        v1::GroupStatus::Unspecified => "-",
        v1::GroupStatus::Ok => "ok",
        v1::GroupStatus::Lagging => "lagging",
        v1::GroupStatus::Stalled => "stalled",
        v1::GroupStatus::NoMembers => "no members",
    }
}

/// A list.
pub(crate) fn groups_view(groups: &[v1::Group]) -> View {
    let row = |group: &v1::Group| {
        vec![
            group.name.clone(),
            mode(group.config.as_ref()).to_owned(),
            group_status(group).to_owned(),
            group.members.len().to_string(),
            show_count(group.total_lag),
            group_age(group),
            show_count(group.dead_letters),
            group.topics.join(", "),
        ]
    };
    let items: Vec<Value> = groups.iter().map(|group| to_json("Group", group)).collect();
    let header = vec![
        "GROUP", "MODE", "STATUS", ">MEMBERS", ">LAG", ">OLDEST", ">DEAD", "TOPICS",
    ];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: groups.iter().map(row).collect(),
        }],
        json: json!({ "groups": items }),
        items,
        names: groups.iter().map(|group| group.name.clone()).collect(),
    }
}

/// One group.
pub(super) fn group_view(group: &v1::Group, zone: &TimeZone) -> View {
    let catch_up = match &group.estimated_catch_up {
        Some(time) => show_duration(Some(time)),
        None if group.total_lag > 0 => String::from("not at this rate"),
        None => String::new(),
    };
    let mut blocks = vec![Block::Pairs(vec![
        ("group", group.name.clone()),
        ("mode", mode(group.config.as_ref()).to_owned()),
        ("status", status_text(group)),
        ("topics", group.topics.join(", ")),
        ("lag", show_count(group.total_lag)),
        ("oldest", group_age(group)),
        ("catches up in", catch_up),
        ("retries", show_count(group.retries_scheduled)),
        ("dead letters", show_count(group.dead_letters)),
        ("workers", scale_advice(group)),
        ("producers", admission_state(group)),
        ("generation", group.generation.to_string()),
    ])];
    if let Some(config) = &group.config {
        blocks.push(config_block(config));
    }
    if !group.lags.is_empty() {
        blocks.push(lags_block(&group.lags));
    }
    if group.lags.iter().any(|lag| lag.pinned.is_some()) {
        blocks.push(pinned_block(&group.lags));
    }
    if !group.members.is_empty() {
        blocks.push(members_block(&group.members, zone));
    }
    if !group.stalls.is_empty() {
        blocks.push(stalls_block(&group.stalls));
    }
    View::one(group.name.clone(), to_json("Group", group), blocks)
}

/// Positions before and after.
pub(super) fn changes_view(changes: &[v1::OffsetChange]) -> View {
    let row = |change: &v1::OffsetChange| {
        let moved = change.new_offset - change.old_offset;
        vec![
            change.topic.clone(),
            change.partition.to_string(),
            change.old_offset.to_string(),
            change.new_offset.to_string(),
            if moved > 0 {
                format!("+{}", show_count(moved))
            } else {
                show_count(moved)
            },
        ]
    };
    let items: Vec<Value> = changes
        .iter()
        .map(|change| to_json("OffsetChange", change))
        .collect();
    let header = vec!["TOPIC", ">PARTITION", ">COMMITTED", ">NEW", ">MOVED"];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: changes.iter().map(row).collect(),
        }],
        json: json!({ "changes": items }),
        items,
        names: changes
            .iter()
            .map(|c| format!("{}/{}", c.topic, c.partition))
            .collect(),
    }
}

fn lags_block(lags: &[v1::PartitionLag]) -> Block {
    let row = |lag: &v1::PartitionLag| {
        vec![
            lag.topic.clone(),
            lag.partition.to_string(),
            lag.committed_offset.to_string(),
            lag.latest_offset.to_string(),
            show_count(lag.lag),
            show_duration(lag.oldest_unprocessed_age.as_ref()),
            show_count(lag.in_flight),
            show_count(lag.done_ahead),
            show_count(lag.expired_unsettled),
            or_dash(&lag.member_id),
        ]
    };
    let header = vec![
        "TOPIC",
        ">PARTITION",
        ">COMMITTED",
        ">LATEST",
        ">LAG",
        ">OLDEST",
        ">IN FLIGHT",
        ">DONE AHEAD",
        ">EXPIRED",
        "MEMBER",
    ];
    Block::Table {
        title: String::new(),
        header,
        rows: lags.iter().map(row).collect(),
    }
}

/// What holds committed offsets back.
fn pinned_block(lags: &[v1::PartitionLag]) -> Block {
    let row = |lag: &v1::PartitionLag| {
        let pinned = lag.pinned.as_ref()?;
        Some(vec![
            lag.topic.clone(),
            lag.partition.to_string(),
            pinned.offset.to_string(),
            record_state(pinned.state()).to_owned(),
            pinned.attempt.to_string(),
            show_duration(pinned.age.as_ref()),
            or_dash(&pinned.member_id),
        ])
    };
    let header = vec![
        "HELD BACK BY",
        ">PARTITION",
        ">OFFSET",
        "STATE",
        ">ATTEMPT",
        ">AGE",
        "MEMBER",
    ];
    Block::Table {
        title: String::new(),
        header,
        rows: lags.iter().filter_map(row).collect(),
    }
}

fn members_block(members: &[v1::Member], zone: &TimeZone) -> Block {
    let row = |member: &v1::Member| {
        vec![
            member.id.clone(),
            or_dash(&member.name),
            or_dash(&member.address),
            member.partitions.len().to_string(),
            member.in_flight.to_string(),
            show_time(member.join_time.as_ref(), zone),
        ]
    };
    let header = vec![
        "MEMBER",
        "NAME",
        "ADDRESS",
        ">PARTITIONS",
        ">IN FLIGHT",
        "JOINED",
    ];
    Block::Table {
        title: String::new(),
        header,
        rows: members.iter().map(row).collect(),
    }
}

fn stalls_block(stalls: &[v1::Stall]) -> Block {
    let row = |stall: &v1::Stall| {
        let offset = stall.offset;
        vec![
            stall.topic.clone(),
            stall.partition.to_string(),
            if offset < 0 {
                String::from("-")
            } else {
                offset.to_string()
            },
            stall_reason(stall.reason()).to_owned(),
            show_duration(stall.age.as_ref()),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec!["HELD UP", ">PARTITION", ">OFFSET", "WHY", ">SINCE"],
        rows: stalls.iter().map(row).collect(),
    }
}

/// Its status, and what else keeps it from giving out all it could.
fn status_text(group: &v1::Group) -> String {
    let mut text = group_status(group).to_owned();
    if group.config.as_ref().is_some_and(|config| config.paused) {
        text.push_str(", paused");
    }
    if group.breaker_open {
        text.push_str(", slowed by its circuit breaker");
    }
    text
}

fn scale_advice(group: &v1::Group) -> String {
    match group.scale_advice {
        0 => String::new(),
        more if more > 0 => format!("{more} more would help"),
        _ if group.members.is_empty() => String::new(),
        fewer => format!("{} fewer would do", fewer.unsigned_abs()),
    }
}

fn admission_state(group: &v1::Group) -> String {
    let Some(state) = &group.admission else {
        return String::new();
    };
    let admission = group.config.as_ref().and_then(|config| config.admission);
    let observes = admission.is_some_and(|admission| admission.observe);
    let count = show_count(state.refused);
    let counted = match (observes, state.refused) {
        (true, _) => format!("{count} requests would have been refused"),
        (false, 1) => String::from("1 request refused"),
        (false, _) => format!("{count} requests refused"),
    };
    if !state.closed {
        return format!("let in, {counted} since the start");
    }
    let would = if observes { "would be " } else { "" };
    let wait = state.retry_after.as_ref().map_or_else(String::new, |wait| {
        format!(", for about {}", show_duration(Some(wait)))
    });
    format!(
        "{would}refused by {}{wait}, {counted} since the start",
        state.reason
    )
}

fn record_state(state: v1::RecordState) -> &'static str {
    match state {
        v1::RecordState::Unspecified => "-",
        v1::RecordState::Ready => "ready",
        v1::RecordState::Leased => "given out",
        v1::RecordState::Waiting => "waits",
        v1::RecordState::Blocked => "behind another",
    }
}

fn stall_reason(reason: v1::StallReason) -> &'static str {
    match reason {
        v1::StallReason::Unspecified => "-",
        v1::StallReason::Window => "an old record is not settled",
        v1::StallReason::Order => "earlier records of the key or partition are not done",
        v1::StallReason::Retries => "too many retries wait",
        v1::StallReason::Halted => "waits for an operator",
    }
}

/// `-` if unset.
fn show_duration(duration: Option<&prost_types::Duration>) -> String {
    match duration.copied().map(Duration::try_from) {
        Some(Ok(duration)) => show_age(duration),
        None | Some(Err(_)) => String::from("-"),
    }
}

/// Members name themselves, so their names are shown with care.
fn or_dash(text: &str) -> String {
    if text.is_empty() {
        String::from("-")
    } else {
        show_text(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    fn group() -> v1::Group {
        v1::Group {
            name: "email".into(),
            status: v1::GroupStatus::Stalled.into(),
            generation: 4,
            members: vec![v1::Member {
                id: "m-1".into(),
                address: "127.0.0.1:5000".into(),
                join_time: Some(prost_types::Timestamp {
                    seconds: 979_397_760,
                    nanos: 0,
                }),
                partitions: vec![v1::TopicPartition::default(); 2],
                in_flight: 500,
                ..v1::Member::default()
            }],
            lags: vec![v1::PartitionLag {
                topic: "orders".into(),
                partition: 1,
                committed_offset: 1000,
                latest_offset: 2500,
                lag: 1500,
                oldest_unprocessed_age: Some(seconds(75)),
                member_id: "m-1".into(),
                in_flight: 500,
                done_ahead: 12,
                expired_unsettled: 3,
                pinned: Some(v1::PinnedRecord {
                    offset: 1000,
                    state: v1::RecordState::Leased.into(),
                    member_id: "m-1".into(),
                    age: Some(seconds(75)),
                    attempt: 2,
                }),
            }],
            total_lag: 1500,
            oldest_unprocessed_age: Some(seconds(75)),
            topics: vec!["orders".into()],
            retries_scheduled: 7,
            dead_letters: 2,
            scale_advice: 2,
            breaker_open: true,
            config: Some(v1::GroupConfig {
                visibility_timeout: Some(seconds(30)),
                paused: true,
                ..v1::GroupConfig::default()
            }),
            admission: Some(v1::AdmissionState {
                closed: true,
                reason: "BACKPRESSURE_AGE".into(),
                refused: 1200,
                ..v1::AdmissionState::default()
            }),
            stalls: vec![v1::Stall {
                reason: v1::StallReason::Window.into(),
                topic: "orders".into(),
                partition: 1,
                offset: 1000,
                age: Some(seconds(61)),
                ..v1::Stall::default()
            }],
            ..v1::Group::default()
        }
    }

    fn text(view: &View) -> String {
        view.to_text(str::to_owned)
    }

    #[test]
    fn a_group_is_shown_with_what_it_has_left_to_do() {
        insta::assert_snapshot!(text(&group_view(&group(), &TimeZone::UTC)));
    }

    #[test]
    fn groups_are_listed_with_lag_and_age() {
        let caught_up = v1::Group {
            name: "audit".into(),
            status: v1::GroupStatus::Ok.into(),
            oldest_unprocessed_age: Some(seconds(0)),
            ..v1::Group::default()
        };
        insta::assert_snapshot!(text(&groups_view(&[caught_up, group()])));
    }

    #[test]
    fn the_json_of_a_group_is_the_contract_s() {
        let json = group_view(&group(), &TimeZone::UTC).json;
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
    }

    #[test]
    fn a_reset_shows_how_far_each_position_moves() {
        let change = |partition, old_offset, new_offset| v1::OffsetChange {
            topic: "orders".into(),
            partition,
            old_offset,
            new_offset,
        };
        let view = changes_view(&[change(0, 1000, 0), change(1, 0, 2500), change(2, 5, 5)]);
        insta::assert_snapshot!(text(&view));
        insta::assert_snapshot!(view.json.to_string());
    }
}
