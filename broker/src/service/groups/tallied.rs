//! What was done for groups, on the page of metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{Measured, with};
use crate::core::groups::Tally;
use crate::service::metrics::{Family, Kind};

type CounterOf = fn(&Tally) -> &Counter;

/// A family of counters, with one series for each value of a label.
struct Counters {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    series: &'static [(&'static str, CounterOf)],
}

const COUNTERS: &[Counters] = &[
    Counters {
        name: "varvelog_group_deliveries",
        help: "Records given out: for the first time, or again after a failure",
        label: "kind",
        series: &[
            ("first", |tally| &tally.first_deliveries),
            ("retry", |tally| &tally.retry_deliveries),
        ],
    },
    Counters {
        name: "varvelog_group_settled",
        help: "Records by what became of them",
        label: "outcome",
        series: &[
            ("done", |tally| &tally.done),
            ("retry", |tally| &tally.retried),
            ("dead_letter", |tally| &tally.dead_lettered),
            ("release", |tally| &tally.released),
            ("conflict", |tally| &tally.conflicts),
        ],
    },
    Counters {
        name: "varvelog_group_late_acks",
        help: "Acks that came after the end of their hand-outs",
        label: "result",
        series: &[
            ("accepted", |tally| &tally.late_accepted),
            ("refused", |tally| &tally.late_refused),
        ],
    },
    Counters {
        name: "varvelog_group_isolated_deliveries",
        help: "Records given out alone",
        label: "",
        series: &[("", |tally| &tally.isolated)],
    },
    Counters {
        name: "varvelog_group_extends",
        help: "Extensions of hand-outs",
        label: "",
        series: &[("", |tally| &tally.extends)],
    },
    Counters {
        name: "varvelog_group_leases_expired",
        help: "Hand-outs whose time was over",
        label: "",
        series: &[("", |tally| &tally.expired)],
    },
    Counters {
        name: "varvelog_group_release_loops",
        help: "Hand-outs that were given back too often",
        label: "",
        series: &[("", |tally| &tally.release_loops)],
    },
    Counters {
        name: "varvelog_group_dropped",
        help: "Dead records that were not kept, as the group says",
        label: "",
        series: &[("", |tally| &tally.dropped)],
    },
];

pub(super) fn counters(measured: &[Measured]) -> Vec<Family> {
    let family = |counters: &Counters| {
        let mut family = Family::new(Kind::Counter, counters.name, counters.help);
        for (labels, tally) in measured.iter().flat_map(Measured::counted) {
            for (value, counter) in counters.series {
                let labels = if counters.label.is_empty() {
                    labels.clone()
                } else {
                    with(&labels, counters.label, (*value).to_owned())
                };
                family.add(labels, counter(tally).get());
            }
        }
        family
    };
    COUNTERS.iter().map(family).collect()
}

pub(super) fn arrivals(measured: &[Measured]) -> Family {
    let mut family = Family::new(
        Kind::Counter,
        "varvelog_dead_letter_arrivals",
        "Records that came to the dead-letter topic, by class and code of what they died of",
    );
    for (labels, tally) in measured.iter().flat_map(Measured::counted) {
        for ((class, code), count) in tally.arrivals() {
            let labels = with(&labels, "error_class", class.to_owned());
            family.add(with(&labels, "error_code", code), count);
        }
    }
    family
}

type Spread = (&'static str, &'static str, fn(&Tally) -> &Histogram);

const SPREADS: &[Spread] = &[
    (
        "varvelog_group_attempts_at_success",
        "The delivery attempt at which hand-outs were done",
        |tally| &tally.attempts_at_success,
    ),
    (
        "varvelog_group_handling_seconds",
        "From a hand-out to its settlement",
        |tally| &tally.handling,
    ),
    (
        "varvelog_retry_delay_seconds",
        "Delays of retries as they were drawn",
        |tally| &tally.retry_delay,
    ),
];

pub(super) fn spreads(measured: &[Measured]) -> Vec<Family> {
    let family = |(name, help, histogram): &Spread| {
        let mut family = Family::new(Kind::Histogram, name, help);
        for (labels, tally) in measured.iter().flat_map(Measured::counted) {
            family.add_spread(labels, histogram(tally).clone());
        }
        family
    };
    SPREADS.iter().map(family).collect()
}
