//! Series of one name, gathered as data.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

/// Labels of a series: names and values.
pub(in crate::service) type Labels = Vec<(&'static str, String)>;

/// What the values of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) enum Kind {
    /// They go up and down.
    Gauge,
    /// They only rise; the name has no `_total`, which the page adds.
    Counter,
    /// How often which sizes were seen.
    Histogram,
}

#[derive(Debug, Clone)]
enum Value {
    Whole(u64),
    Real(f64),
    Spread(Histogram),
}

/// Series of one name. It is on the page without any, too.
#[derive(Debug)]
pub(in crate::service) struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    series: Vec<(Labels, Value)>,
}

impl Family {
    /// Without series. `help` ends without a full stop, which the page adds.
    pub(in crate::service) fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            kind,
            series: Vec::new(),
        }
    }

    /// Of one series without labels.
    pub(super) fn single(
        kind: Kind,
        (name, help): (&'static str, &'static str),
        value: u64,
    ) -> Self {
        let mut family = Self::new(kind, name, help);
        family.add(Labels::new(), value);
        family
    }

    /// Adds a series with a whole number.
    pub(in crate::service) fn add(&mut self, labels: Labels, value: u64) {
        self.series.push((labels, Value::Whole(value)));
    }

    /// Adds a series with any number.
    pub(in crate::service) fn add_real(&mut self, labels: Labels, value: f64) {
        self.series.push((labels, Value::Real(value)));
    }

    /// Adds a series of a family of histograms.
    pub(in crate::service) fn add_spread(&mut self, labels: Labels, value: Histogram) {
        self.series.push((labels, Value::Spread(value)));
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut encoder = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in &self.series {
            if labels.is_empty() {
                return encode_value(self.kind, value, encoder);
            }
            encode_value(self.kind, value, encoder.encode_family(labels)?)?;
        }
        Ok(())
    }
}

fn encode_value(kind: Kind, value: &Value, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match (kind, value) {
        (_, Value::Spread(histogram)) => histogram.encode(encoder),
        (Kind::Counter, Value::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Kind::Counter, Value::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Kind::Gauge | Kind::Histogram, Value::Whole(value)) => encoder.encode_gauge(value),
        (Kind::Gauge | Kind::Histogram, Value::Real(value)) => encoder.encode_gauge(value),
    }
}

/// Families as the page takes them.
#[derive(Debug)]
pub(super) struct Families(pub(super) Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|family| family.encode(&mut encoder))
    }
}
