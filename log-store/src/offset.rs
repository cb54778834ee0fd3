//! Numbers with types. Only this file does arithmetic on offsets and sequences.

use std::fmt;

/// A record's place in its partition, counted from 0. At most [`Offset::MAX`], so that it always
/// fits the signed 64-bit fields of the API and of the record batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(u64);

impl Offset {
    /// The first offset of a partition.
    pub const ZERO: Self = Self(0);
    /// The largest offset: 2^63 - 1.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());

    /// An offset, or nothing when `value` is above [`Offset::MAX`].
    pub const fn new(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 {
            Some(Self(value))
        } else {
            None
        }
    }

    /// An offset from a signed field, or nothing when it is negative.
    pub fn from_i64(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Self)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as the API carries it; never negative.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// The offset `count` records further; stays at [`Offset::MAX`].
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        let sum = self.0.saturating_add(count);
        if sum > Self::MAX.0 {
            Self::MAX
        } else {
            Self(sum)
        }
    }

    /// The offset `count` records before; stays at 0.
    #[must_use]
    pub const fn minus(self, count: u64) -> Self {
        Self(self.0.saturating_sub(count))
    }

    /// How many records lie from `earlier` up to, not including, this one; 0 if it is not later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a command in the write-ahead log, from 1. It never repeats in a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(u64);

impl Sequence {
    /// Before the first command.
    pub const ZERO: Self = Self(0);

    /// The sequence with this number.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one before; stays at 0.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// How many commands lie from `earlier` to this one; 0 if it is not later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often a partition's end was uncertain: it rises with each start after an unclean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

impl Epoch {
    /// As the API carries it.
    pub fn as_i32(self) -> i32 {
        i32::try_from(self.0).unwrap_or(i32::MAX)
    }
}

/// Wall-clock time, Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallMs(pub i64);

/// Identity of a topic: a UUID. A topic made again under the same name has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// Identity of a partition: its topic and its number from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// From 0.
    pub partition: u32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Random identity of a data folder, in the header of every file: a file of another folder is
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FolderId(pub [u8; 16]);
