//! How much a read brings.

use crate::Offset;
use crate::partition::fields::size_u32;

/// Bounds of one read. At least one batch comes if there is any, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most bytes of bodies.
    pub bytes_max: u32,
    /// Most batches.
    pub batches_max: u32,
    /// Batches that begin at or behind it are left out.
    pub until: Offset,
}

/// What is left of a [`ReadLimit`] as batches are taken.
#[derive(Debug)]
pub(crate) struct Take {
    limit: ReadLimit,
    is_first: bool,
    is_done: bool,
}

impl Take {
    pub(crate) fn new(limit: ReadLimit) -> Self {
        Self {
            limit,
            is_first: true,
            is_done: false,
        }
    }

    /// Whether the batch may be taken, which is then counted. Once one is refused all are.
    pub(crate) fn admit(&mut self, base: Offset, body_bytes: usize) -> bool {
        let bytes = size_u32(body_bytes);
        let fits = self.is_first || (bytes <= self.limit.bytes_max && self.limit.batches_max > 0);
        if self.is_done || base >= self.limit.until || !fits {
            self.is_done = true;
            return false;
        }
        self.is_first = false;
        self.limit.bytes_max = self.limit.bytes_max.saturating_sub(bytes);
        self.limit.batches_max = self.limit.batches_max.saturating_sub(1);
        true
    }

    /// Nothing more may be taken.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
            || (!self.is_first && (self.limit.bytes_max == 0 || self.limit.batches_max == 0))
    }

    pub(crate) fn bytes_left(&self) -> u32 {
        self.limit.bytes_max
    }

    pub(crate) fn until(&self) -> Offset {
        self.limit.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(value: u64) -> Offset {
        Offset::new(value).unwrap()
    }

    #[test]
    fn the_first_batch_passes_whatever_its_size_and_the_others_within_the_limits() {
        let limit = ReadLimit {
            bytes_max: 10,
            batches_max: 3,
            until: Offset::MAX,
        };
        let mut big = Take::new(limit);
        assert!(big.admit(offset(0), 11));
        assert!(big.is_done());
        assert!(!big.admit(offset(1), 1));
        let mut small = Take::new(limit);
        assert!([0, 1, 2].iter().all(|base| small.admit(offset(*base), 1)));
        assert!(small.is_done());
        assert!(!small.admit(offset(3), 1));
    }

    #[test]
    fn a_refused_batch_ends_the_read_and_so_does_the_given_end() {
        let limit = ReadLimit {
            bytes_max: 10,
            batches_max: 9,
            until: offset(2),
        };
        let mut take = Take::new(limit);
        assert!(take.admit(offset(0), 8));
        assert!(!take.admit(offset(1), 3));
        assert!(
            !take.admit(offset(1), 1),
            "a smaller one behind it would leave a gap"
        );
        assert!(!Take::new(limit).admit(offset(2), 1));
        let none = ReadLimit {
            bytes_max: 0,
            batches_max: 0,
            ..limit
        };
        assert!(Take::new(none).admit(offset(0), 5));
    }
}
