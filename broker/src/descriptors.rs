//! File descriptors: how many the process may have, and what each part of the broker may take.
//!
//! A partition that is written to holds three: its segment and two indexes. Where one cannot be
//! opened its records stay in memory, and appends wait before long; so connections never get so
//! many that partitions find none.

/// So many, where the system does not say.
#[cfg(not(unix))]
const UNKNOWN: usize = 1024;
/// Most sealed segments that are kept open for readers, over all partitions.
const OPEN_SEGMENTS_MAX: usize = 512;

/// The descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    limit: usize,
}

impl Descriptors {
    /// Raises the soft limit of the process to its hard one.
    pub(crate) fn raise() -> Self {
        Self { limit: raised() }
    }

    /// How many there may be.
    pub(crate) fn limit(self) -> usize {
        self.limit
    }

    /// Connections, of the `configured` ones: a quarter of all at most.
    pub(crate) fn connections_max(self, configured: usize) -> usize {
        configured.min(self.limit / 4).max(1)
    }

    /// Sealed segments that are kept open: at three each, less than a fifth of all.
    pub(crate) fn open_segments_max(self) -> usize {
        OPEN_SEGMENTS_MAX.min(self.limit / 16).max(1)
    }
}

#[cfg(unix)]
fn raised() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    let whole = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, whole) {
        tracing::warn!(%error, "the limit of open files stays as it was");
    }
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

#[cfg(not(unix))]
fn raised() -> usize {
    UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_sealed_segments_leave_descriptors_to_partitions() {
        for limit in [0, 1, 64, 256, 1_024, 20_000, 1 << 20, usize::MAX] {
            let descriptors = Descriptors { limit };
            let connections = descriptors.connections_max(1_000);
            let sealed = descriptors.open_segments_max();
            assert!((1..=1_000).contains(&connections), "{limit}");
            assert!((1..=OPEN_SEGMENTS_MAX).contains(&sealed), "{limit}");
            if limit >= 64 {
                assert!(connections + 3 * sealed <= limit / 2, "{limit}");
            }
        }
    }

    #[test]
    fn what_is_configured_stands_where_there_are_enough() {
        let descriptors = Descriptors { limit: 20_000 };
        assert_eq!(descriptors.connections_max(1_000), 1_000);
        assert_eq!(descriptors.open_segments_max(), OPEN_SEGMENTS_MAX);
    }

    #[cfg(unix)]
    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        use rustix::process::{Resource, getrlimit};
        let descriptors = Descriptors::raise();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        let current = limits.current.unwrap_or(u64::MAX);
        assert_eq!(descriptors.limit() as u64, current);
    }
}
