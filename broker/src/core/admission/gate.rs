//! One gate: open or closed by how far a group is behind.

use crate::core::settings::AdmissionSettings;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Records that are not done.
    Depth,
    /// Milliseconds since the append of the oldest of them.
    Age,
    /// Bytes of them.
    Bytes,
}

impl Measure {
    /// In the order in which they are told.
    pub const ALL: [Self; 3] = [Self::Depth, Self::Age, Self::Bytes];

    /// The reason by which the API and the metrics name it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Depth => "BACKPRESSURE_DEPTH",
            Self::Age => "BACKPRESSURE_AGE",
            Self::Bytes => "BACKPRESSURE_BYTES",
        }
    }

    /// For people, with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Depth => "the number of records not done",
            Self::Age => "the age of the oldest in ms",
            Self::Bytes => "their size in bytes",
        }
    }
}

/// How far a group is behind in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behind {
    /// Records that are not done.
    pub records: u64,
    /// Milliseconds since the append of the oldest of them; 0 without any.
    pub age_ms: u64,
    /// Bytes of them, as stored.
    pub bytes: u64,
}

impl Behind {
    /// By one measure.
    pub fn by(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Depth => self.records,
            Measure::Age => self.age_ms,
            Measure::Bytes => self.bytes,
        }
    }
}

impl AdmissionSettings {
    /// Where the gate closes; none if the measure is not watched.
    pub fn limit(&self, measure: Measure) -> Option<u64> {
        let limit = match measure {
            Measure::Depth => self.depth_max,
            Measure::Age => self.age_max_ms,
            Measure::Bytes => self.bytes_max,
        };
        (limit > 0).then_some(limit)
    }

    /// At or below which the gate opens, if it is watched.
    pub fn resume_at(&self, measure: Measure) -> Option<u64> {
        let limit = self.limit(measure)?;
        let level = u128::from(limit) * u128::from(self.resume_permille) / 1_000;
        Some(u64::try_from(level).unwrap_or(limit).min(limit))
    }

    fn first(&self, is_over: impl Fn(u64, Measure) -> bool) -> Option<Measure> {
        let mut all = Measure::ALL.into_iter();
        all.find(|it| self.limit(*it).is_some_and(|limit| is_over(limit, *it)))
    }
}

/// A gate. It remembers whether it is closed, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    is_closed: bool,
}

impl Gate {
    /// What keeps it closed with these values, if anything: a limit that is reached, or, once it
    /// is closed, a value above its resume level.
    pub fn judge(self, settings: &AdmissionSettings, behind: &Behind) -> Option<Measure> {
        let reached = settings.first(|limit, it| behind.by(it) >= limit);
        reached.or_else(|| {
            let is_above = |_, it| settings.resume_at(it).is_some_and(|at| behind.by(it) > at);
            self.is_closed.then(|| settings.first(is_above)).flatten()
        })
    }

    /// Opens or closes it by these values.
    pub fn look(&mut self, settings: &AdmissionSettings, behind: &Behind) -> Option<Measure> {
        let closed_by = self.judge(settings, behind);
        self.is_closed = closed_by.is_some();
        closed_by
    }

    /// As it was left by the last look.
    pub fn is_closed(self) -> bool {
        self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(depth_max: u64, age_max_ms: u64, bytes_max: u64) -> AdmissionSettings {
        AdmissionSettings {
            depth_max,
            age_max_ms,
            bytes_max,
            ..AdmissionSettings::default()
        }
    }

    fn deep(records: u64) -> Behind {
        Behind {
            records,
            ..Behind::default()
        }
    }

    #[test]
    fn it_closes_at_the_limit_and_opens_at_the_resume_level() {
        let settings = settings(1_000, 0, 0);
        let mut gate = Gate::default();
        let mut closed = |records| gate.look(&settings, &deep(records)).is_some();
        assert!(!closed(999));
        assert!(closed(1_000));
        assert!(closed(999));
        assert!(closed(801));
        assert!(!closed(800));
        assert!(!closed(999), "on the way up it stays open up to the limit");
    }

    #[test]
    fn any_one_measure_closes_it_and_all_have_to_be_back_before_it_opens() {
        let settings = settings(10, 1_000, 100);
        let mut gate = Gate::default();
        let behind = |records, age_ms, bytes| Behind {
            records,
            age_ms,
            bytes,
        };
        assert_eq!(gate.look(&settings, &behind(9, 999, 99)), None);
        let aged = gate.look(&settings, &behind(9, 1_000, 99));
        assert_eq!(aged, Some(Measure::Age));
        let still = gate.look(&settings, &behind(8, 0, 81));
        assert_eq!(still, Some(Measure::Bytes));
        assert_eq!(gate.look(&settings, &behind(8, 800, 80)), None);
    }

    #[test]
    fn a_limit_of_one_opens_when_nothing_is_left_and_a_ratio_of_one_needs_less_than_the_limit() {
        let mut gate = Gate::default();
        let one = settings(1, 0, 0);
        assert!(gate.look(&one, &deep(1)).is_some());
        assert!(gate.look(&one, &deep(0)).is_none());
        let whole = AdmissionSettings {
            resume_permille: 1_000,
            ..settings(5, 0, 0)
        };
        assert!(gate.look(&whole, &deep(5)).is_some());
        assert!(gate.look(&whole, &deep(5)).is_some());
        assert!(gate.look(&whole, &deep(4)).is_none());
    }

    proptest! {
        /// Whatever came before, only the bit of it counts.
        #[test]
        fn what_is_not_watched_never_closes_it_and_what_is_past_counts_by_one_bit(
            limits in prop::array::uniform3(0..20_u64),
            resume_permille in 1..=1_000_u32,
            steps in prop::collection::vec(prop::array::uniform3(0..25_u64), 1..40),
        ) {
            let [depth_max, age_max_ms, bytes_max] = limits;
            let settings = AdmissionSettings {
                resume_permille,
                ..settings(depth_max, age_max_ms, bytes_max)
            };
            let mut gate = Gate::default();
            for [records, age_ms, bytes] in steps {
                let behind = Behind { records, age_ms, bytes };
                let was_closed = gate.is_closed();
                let closed = gate.look(&settings, &behind).is_some();
                let pairs = [(records, depth_max), (age_ms, age_max_ms), (bytes, bytes_max)];
                let watched = || pairs.iter().filter(|(_, limit)| *limit > 0);
                let reached = watched().any(|(value, limit)| value >= limit);
                let level = |limit: &u64| limit * u64::from(resume_permille) / 1_000;
                let above = watched().any(|(value, limit)| *value > level(limit));
                prop_assert_eq!(closed, reached || (was_closed && above));
            }
        }
    }
}
