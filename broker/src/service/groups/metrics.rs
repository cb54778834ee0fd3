//! Groups on the page of metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use varvelog_proto::v1;
use varvelog_store::TopicId;

use super::gate_metrics::gates;
use super::lags::{Ages, ages};
use super::open_records::Budget;
use super::shown::{status, trend};
use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use super::tallied::{arrivals, counters, spreads};
use crate::core::durable_groups::ACK_WINDOW;
use crate::core::groups::{GroupTally, Tally};
use crate::core::refusal::CallError;
use crate::service::context::Context;
use crate::service::metrics::{Family, Kind, Labels};

/// A group as it is now, and what was done for it.
pub(super) struct Measured {
    pub(super) group: GroupSnapshot,
    /// As the partitions of the group.
    pub(super) ages: Vec<Ages>,
    tallies: BTreeMap<TopicId, Arc<Tally>>,
    rebalances: u64,
    sessions_lost: u64,
}

/// The families of groups.
pub(in crate::service) async fn metrics(context: &Context) -> Result<Vec<Family>, CallError> {
    let now = context.wall();
    let groups: Vec<_> = context
        .core()
        .query(move |view| {
            let mut budget = Budget::new(now);
            let groups = view.state.groups.iter();
            let measured = groups.map(|group| {
                let tally = view.sessions.tally(&group.name);
                let tallies = tally.map(|tally| tally.topics.clone());
                let count = |of: fn(&GroupTally) -> &Counter| tally.map_or(0, |it| of(it).get());
                Measured {
                    group: GroupSnapshot::of(view, group, &mut budget),
                    ages: Vec::new(),
                    tallies: tallies.unwrap_or_default(),
                    rebalances: count(|tally| &tally.rebalances),
                    sessions_lost: count(|tally| &tally.sessions_lost),
                }
            });
            measured.collect()
        })
        .await?;
    let mut measured: Vec<Measured> = groups;
    for one in &mut measured {
        one.ages = ages(context, &one.group).await;
    }
    let mut families = partitions(&measured);
    families.extend(topics(&measured));
    families.extend(whole(context, &measured));
    families.extend(gates(context, &measured));
    families.extend(counters(&measured));
    families.extend(spreads(&measured));
    families.push(arrivals(&measured));
    Ok(families)
}

impl Measured {
    pub(super) fn labels(&self) -> Labels {
        vec![("group", self.group.name.to_string())]
    }

    fn topic_labels(&self, topic: usize) -> Labels {
        let mut labels = self.labels();
        let name = self.group.topics.get(topic).map(ToString::to_string);
        labels.push(("topic", name.unwrap_or_default()));
        labels
    }

    fn partition_labels(&self, partition: &PartitionSnapshot) -> Labels {
        let mut labels = self.topic_labels(partition.topic);
        labels.push(("partition", partition.id.partition.to_string()));
        labels
    }

    /// Its partitions in one topic, with their ages.
    fn of_topic(&self, topic: usize) -> impl Iterator<Item = (&PartitionSnapshot, &Ages)> {
        let all = self.group.partitions.iter().zip(&self.ages);
        all.filter(move |(partition, _)| partition.topic == topic)
    }

    /// The topics that it has counts of.
    pub(super) fn counted(&self) -> impl Iterator<Item = (Labels, &Tally)> {
        self.tallies.iter().filter_map(|(id, tally)| {
            let of_topic = |one: &&PartitionSnapshot| one.id.topic == *id;
            let partition = self.group.partitions.iter().find(of_topic)?;
            Some((self.topic_labels(partition.topic), tally.as_ref()))
        })
    }
}

fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}

fn per_partition(
    measured: &[Measured],
    (name, help): (&'static str, &'static str),
    add: impl Fn(&mut Family, Labels, &PartitionSnapshot, &Ages),
) -> Family {
    let mut family = Family::new(Kind::Gauge, name, help);
    for one in measured {
        for (partition, ages) in one.group.partitions.iter().zip(&one.ages) {
            add(
                &mut family,
                one.partition_labels(partition),
                partition,
                ages,
            );
        }
    }
    family
}

fn partitions(measured: &[Measured]) -> Vec<Family> {
    let window = f64::from(u32::try_from(ACK_WINDOW).unwrap_or(u32::MAX));
    vec![
        per_partition(
            measured,
            (
                "varvelog_group_oldest_unprocessed_age_seconds",
                "Age of the oldest record that is not done in the topic itself; 0 when caught up",
            ),
            |family, labels, _, ages| family.add_real(labels, seconds(ages.oldest)),
        ),
        per_partition(
            measured,
            (
                "varvelog_group_lag_records",
                "Records that are not done in the topic itself",
            ),
            |family, labels, partition, _| family.add(labels, partition.lag),
        ),
        per_partition(
            measured,
            (
                "varvelog_group_committed_offset",
                "All records below it are done",
            ),
            |family, labels, partition, _| family.add(labels, partition.low.get()),
        ),
        per_partition(
            measured,
            (
                "varvelog_group_window_used_ratio",
                "How far records are done beyond the committed offset, of what may be",
            ),
            |family, labels, partition, _| {
                let open = partition.lag.saturating_add(partition.done_ahead);
                let beyond = if partition.done_ahead == 0 {
                    0
                } else {
                    open.min(ACK_WINDOW)
                };
                let beyond = f64::from(u32::try_from(beyond).unwrap_or(u32::MAX));
                family.add_real(labels, beyond / window);
            },
        ),
        per_partition(
            measured,
            (
                "varvelog_group_pinned_age_seconds",
                "Age of the record that holds back the committed offset; 0 if none does",
            ),
            |family, labels, partition, ages| {
                let pinned = partition.pinned.as_ref().and(ages.oldest);
                family.add_real(labels, seconds(pinned));
            },
        ),
    ]
}

/// A gauge with a value for each topic of each group.
fn per_topic(
    measured: &[Measured],
    (kind, name, help): (Kind, &'static str, &'static str),
    add: impl Fn(&mut Family, Labels, &mut dyn Iterator<Item = (&PartitionSnapshot, &Ages)>),
) -> Family {
    let mut family = Family::new(kind, name, help);
    for one in measured {
        for topic in 0..one.group.topics.len() {
            add(
                &mut family,
                one.topic_labels(topic),
                &mut one.of_topic(topic),
            );
        }
    }
    family
}

fn topics(measured: &[Measured]) -> Vec<Family> {
    let sum = |name, help, value: fn(&PartitionSnapshot) -> u64| {
        per_topic(
            measured,
            (Kind::Gauge, name, help),
            move |family, labels, each| {
                let sum = each.map(|(one, _)| value(one)).fold(0, u64::saturating_add);
                family.add(labels, sum);
            },
        )
    };
    let oldest = |name, help, value: fn(&Ages) -> Option<Duration>| {
        per_topic(
            measured,
            (Kind::Gauge, name, help),
            move |family, labels, each| {
                let oldest = each.filter_map(|(_, ages)| value(ages)).max();
                family.add_real(labels, seconds(oldest));
            },
        )
    };
    vec![
        oldest(
            "varvelog_group_ready_age_seconds",
            "Since when the oldest record could be given out that can be now",
            |ages| ages.ready,
        ),
        oldest(
            "varvelog_group_end_to_end_age_seconds",
            "Age of the oldest record that is not done, those in the retry topic included",
            |ages| ages.oldest.max(ages.retried),
        ),
        records(measured),
        sum(
            "varvelog_group_ack_set_bytes",
            "Bytes of what is done beyond the committed offset",
            |one| one.ack_set_bytes,
        ),
        sum(
            "varvelog_retry_scheduled",
            "Records that wait for their time",
            |one| one.open.scheduled,
        ),
        sum(
            "varvelog_retry_due",
            "Records of the retry topic whose time has come",
            |one| one.open.due_count,
        ),
        oldest(
            "varvelog_retry_overdue_seconds",
            "How late the oldest retry is that could be given out",
            |ages| ages.overdue,
        ),
        per_topic(
            measured,
            (
                Kind::Counter,
                "varvelog_group_expired_unsettled",
                "Records that retention took away before they were done",
            ),
            |family, labels, each| {
                let lost = each.map(|(one, _)| one.expired_unsettled);
                family.add(labels, lost.fold(0, u64::saturating_add));
            },
        ),
    ]
}

/// By state. What is behind an earlier record of its key or partition is blocked.
fn records(measured: &[Measured]) -> Family {
    let (name, help) = (
        "varvelog_group_records",
        "Records that are not done, by state",
    );
    per_topic(
        measured,
        (Kind::Gauge, name, help),
        |family, labels, each| {
            let (mut ready, mut leased, mut waiting, mut blocked) = (0_u64, 0_u64, 0_u64, 0_u64);
            for (one, _) in each {
                let open = one.lag.saturating_add(one.open.retries);
                let others = one.in_flight.saturating_add(one.open.scheduled);
                let free = open.saturating_sub(others);
                leased = leased.saturating_add(one.in_flight);
                waiting = waiting.saturating_add(one.open.scheduled);
                blocked = blocked.saturating_add(one.blocked.min(free));
                ready = ready.saturating_add(free.saturating_sub(one.blocked));
            }
            for (state, count) in [
                ("ready", ready),
                ("leased", leased),
                ("waiting", waiting),
                ("blocked", blocked),
            ] {
                let mut labels = labels.clone();
                labels.push(("state", state.to_owned()));
                family.add(labels, count);
            }
        },
    )
}

/// What there is once for a group.
fn whole(context: &Context, measured: &[Measured]) -> Vec<Family> {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let mut members = gauge(
        "varvelog_group_members",
        "Members, those that are waited for included",
    );
    let mut breaker = gauge(
        "varvelog_group_breaker_open",
        "1 while first deliveries are slowed down",
    );
    let mut statuses = gauge(
        "varvelog_group_status",
        "1 for the status that holds, else 0",
    );
    let mut catch_up = gauge(
        "varvelog_group_estimated_catch_up_seconds",
        "Until the group has caught up; absent if it does not",
    );
    let mut stalled = gauge(
        "varvelog_group_stalled_partitions",
        "Partitions that give out nothing new",
    );
    let mut rebalances = Family::new(
        Kind::Counter,
        "varvelog_group_rebalances",
        "Times that partitions were assigned anew",
    );
    let mut lost = Family::new(
        Kind::Counter,
        "varvelog_group_sessions_lost",
        "Members that ended without a word",
    );
    for one in measured {
        let labels = one.labels();
        let count = u64::try_from(one.group.members.len()).unwrap_or(u64::MAX);
        members.add(labels.clone(), count);
        breaker.add(labels.clone(), u64::from(one.group.breaker_open));
        let trend = trend(context, &one.group);
        let status_now = status(context, &one.group, trend.is_lagging);
        for status in STATUSES {
            let labels = with(
                &labels,
                "status",
                short(status.as_str_name(), "GROUP_STATUS_"),
            );
            statuses.add(labels, u64::from(*status == status_now));
        }
        if let Some(catch_up_in) = trend.catch_up {
            catch_up.add_real(labels.clone(), catch_up_in.as_secs_f64());
        }
        let mut reasons: BTreeMap<&'static str, u64> = BTreeMap::new();
        for partition in &one.group.partitions {
            if let Some(reason) = partition.stalled.map(|stalled| stalled.reason()) {
                *reasons.entry(reason.as_str_name()).or_default() += 1;
            }
        }
        for (reason, count) in reasons {
            stalled.add(
                with(&labels, "reason", short(reason, "STALL_REASON_")),
                count,
            );
        }
        rebalances.add(labels.clone(), one.rebalances);
        lost.add(labels, one.sessions_lost);
    }
    vec![
        members, breaker, statuses, catch_up, stalled, rebalances, lost,
    ]
}

const STATUSES: &[v1::GroupStatus] = &[
    v1::GroupStatus::Ok,
    v1::GroupStatus::Lagging,
    v1::GroupStatus::Stalled,
    v1::GroupStatus::NoMembers,
];

/// A name of the contract without the name of its type, in small letters.
fn short(name: &str, prefix: &str) -> String {
    name.trim_start_matches(prefix).to_ascii_lowercase()
}

pub(super) fn with(labels: &Labels, name: &'static str, value: String) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value));
    labels
}
