//! Dead-letter topics: what lies there.

use std::collections::BTreeMap;

use super::family::{Family, Kind, Labels};
use crate::core::dead_letters::{JobState, Queue};
use crate::core::durable_groups::GroupReads;
use crate::core::failure::{ErrorClass, Wait};
use crate::core::handle::CoreView;
use crate::core::refusal::CallError;
use crate::core::topics::DerivedKind;
use crate::service::context::Context;

/// Codes of one queue that have series of their own; the others are one.
const CODES_MAX: usize = 20;
/// Records that failed and stayed, of all queues, that are looked at for those that wait for room.
const NOTES_LOOKED_AT_MAX: usize = 100_000;

/// What the core says of one queue.
struct Figures {
    labels: Labels,
    depth: u64,
    bytes: u64,
    age_ms: u64,
    waiting: u64,
    fingerprints: u64,
    /// Entries that are there, by class and code.
    causes: Vec<(String, String, u64)>,
}

/// Their families.
pub(super) async fn families(context: &Context) -> Result<Vec<Family>, CallError> {
    let now = context.wall();
    let (figures, jobs) = context
        .core()
        .query(move |view| (figures(view, now.0), jobs(view)))
        .await?;
    let gauge = |name, help, value: &dyn Fn(&Figures) -> u64| {
        let mut family = Family::new(Kind::Gauge, name, help);
        for one in &figures {
            family.add(one.labels.clone(), value(one));
        }
        family
    };
    let mut age = Family::new(
        Kind::Gauge,
        "varvelog_dead_letter_oldest_age_seconds",
        "Since the death of the oldest entry",
    );
    let mut causes = Family::new(
        Kind::Gauge,
        "varvelog_dead_letters_by_cause",
        "Entries of the dead-letter topic, by class and code of what they died of",
    );
    for one in &figures {
        let seconds = std::time::Duration::from_millis(one.age_ms).as_secs_f64();
        age.add_real(one.labels.clone(), seconds);
        for (class, code, count) in &one.causes {
            let labels = with(&one.labels, &[("error_class", class), ("error_code", code)]);
            causes.add(labels, *count);
        }
    }
    Ok(vec![
        gauge(
            "varvelog_dead_letters",
            "Entries of the dead-letter topic",
            &|it| it.depth,
        ),
        gauge(
            "varvelog_dead_letter_bytes",
            "Bytes of these entries",
            &|it| it.bytes,
        ),
        gauge(
            "varvelog_dead_letters_waiting",
            "Dead records that wait in place for room in the dead-letter topic",
            &|it| it.waiting,
        ),
        gauge(
            "varvelog_dead_letter_fingerprints",
            "Distinct fingerprints of what is in the dead-letter topic",
            &|it| it.fingerprints,
        ),
        age,
        causes,
        jobs,
    ])
}

/// Replay jobs that are not over, by state.
fn jobs(view: &CoreView<'_>) -> Family {
    let mut family = Family::new(
        Kind::Gauge,
        "varvelog_replay_jobs",
        "Replay jobs that are not over, by state",
    );
    for (name, state) in [("running", JobState::Running), ("paused", JobState::Paused)] {
        let jobs = view.state.dead_letters.jobs().active();
        let count = jobs.filter(|job| job.state == state).count();
        let labels = vec![("state", name.to_owned())];
        family.add(labels, u64::try_from(count).unwrap_or(u64::MAX));
    }
    family
}

fn with(labels: &Labels, more: &[(&'static str, &str)]) -> Labels {
    let more = more
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    labels.iter().cloned().chain(more).collect()
}

fn figures(view: &CoreView<'_>, now_ms: i64) -> Vec<Figures> {
    let mut left = NOTES_LOOKED_AT_MAX;
    let mut all = Vec::new();
    for topic in view.state.topics.iter() {
        let derived = topic.derived.as_ref();
        let Some(derived) = derived.filter(|it| it.kind == DerivedKind::DeadLetter) else {
            continue;
        };
        let Some(source) = view.state.topics.by_id(derived.source) else {
            continue;
        };
        let group = view.state.groups.get(&derived.group);
        let reads = group.and_then(|group| group.topics.get(&derived.source));
        let empty = Queue::default();
        let queue = view.state.dead_letters.get(topic.id).unwrap_or(&empty);
        let oldest = queue.firsts().map(|entry| entry.died.0).min();
        let age_ms = oldest.map_or(0, |died| now_ms.saturating_sub(died));
        all.push(Figures {
            labels: vec![
                ("group", derived.group.to_string()),
                ("topic", source.name.to_string()),
            ],
            depth: queue.depth(),
            bytes: queue.bytes(),
            age_ms: u64::try_from(age_ms).unwrap_or(0),
            waiting: reads.map_or(0, |reads| waiting(reads, &mut left)),
            fingerprints: fingerprints(queue),
            causes: causes(queue),
        });
    }
    all
}

fn waiting(reads: &GroupReads, left: &mut usize) -> u64 {
    let in_source = reads.partitions.iter().flat_map(|it| it.notes().values());
    let in_retry = reads.retries.iter().flat_map(|it| it.notes().values());
    let all = in_source.chain(in_retry).take(*left);
    let (mut looked_at, mut waiting) = (0, 0);
    for note in all {
        looked_at += 1;
        waiting += u64::from(matches!(note.wait, Wait::Room(_)));
    }
    *left -= looked_at;
    waiting
}

fn fingerprints(queue: &Queue) -> u64 {
    let causes = queue.causes().iter();
    let distinct: std::collections::BTreeSet<u64> = causes
        .filter_map(|(_, cause, _)| cause.fingerprint)
        .collect();
    u64::try_from(distinct.len()).unwrap_or(u64::MAX)
}

/// The most frequent classes and codes; all others are one.
fn causes(queue: &Queue) -> Vec<(String, String, u64)> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, cause, count) in queue.causes().iter() {
        let class = cause.class.map_or("", ErrorClass::as_str);
        *counts.entry((class, cause.code.as_str())).or_default() += count;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest = counts.split_off(counts.len().min(CODES_MAX));
    let others = rest.iter().map(|(_, count)| *count).sum::<u64>() + queue.causes().others();
    let named = counts.into_iter();
    let mut found: Vec<_> = named
        .map(|((class, code), count)| (class.to_owned(), code.to_owned(), count))
        .collect();
    if others > 0 {
        found.push(("other".to_owned(), "other".to_owned(), others));
    }
    found
}
