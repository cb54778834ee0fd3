//! The only place that formats or parses the name of a file or folder.
//!
//! ```text
//! identity                                                   who this folder is
//! lock                                                       locked while a process uses it
//! clean                                                      there after a clean stop only
//! wal/<20 digits>.wal                                        in use, or ready to be used next
//!     <20 digits>.spare                                      kept to be used again
//!     <20 digits>.torn                                       what a start cut off that file
//! partitions/<topic uuid>-<partition>/<20 digits>.log        segment, named by its first offset
//!                                     <20 digits>.index      its offset index
//!                                     <20 digits>.timeindex  its time index
//! checkpoints/<20 digits>.ckpt                               named by its sequence
//! wal.given-up-<number>/                                     a log that was given up by hand
//! ```
//!
//! A name that parses as nothing is not ours, and is left alone. A file that is being written
//! under a temporary name has `.tmp` behind its own.

use crate::offset::{Offset, PartitionId, Sequence, TopicId};

/// Folder of all partitions.
pub const PARTITIONS: &str = "partitions";
/// Folder of the checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// Folder of the write-ahead log.
pub const WAL: &str = "wal";
/// Who this data folder is.
pub const IDENTITY: &str = "identity";
/// Locked by the process that uses the folder; its content means nothing.
pub const LOCK: &str = "lock";
/// There after a clean stop only.
pub const CLEAN: &str = "clean";

const DIGITS: usize = 20;
const UUID_CHARS: usize = 36;
const TMP: &str = ".tmp";
const LOG: &str = ".log";
const INDEX: &str = ".index";
const TIME_INDEX: &str = ".timeindex";
const CHECKPOINT: &str = ".ckpt";
const WAL_LOG: &str = ".wal";
const WAL_SPARE: &str = ".spare";
const WAL_TORN: &str = ".torn";
const GIVEN_UP: &str = ".given-up";

/// What a file in the folder of the write-ahead log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WalFile {
    /// In use, or ready to be used next; holds its number.
    Log(u64),
    /// No longer needed, kept to be used again; holds the number that it had.
    Spare(u64),
    /// What a start cut off the end of the file with this number.
    Torn(u64),
}

impl WalFile {
    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Log(number) => numbered(number, WAL_LOG),
            Self::Spare(number) => numbered(number, WAL_SPARE),
            Self::Torn(number) => numbered(number, WAL_TORN),
        }
    }

    /// The file with this name, if it is one of the write-ahead log's.
    pub fn parse(name: &str) -> Option<Self> {
        let log = || parse_numbered(name, WAL_LOG).map(Self::Log);
        let spare = || parse_numbered(name, WAL_SPARE).map(Self::Spare);
        let torn = || parse_numbered(name, WAL_TORN).map(Self::Torn);
        log().or_else(spare).or_else(torn)
    }
}

/// The folder that the write-ahead log is moved to when it is given up for the `number`th time.
pub fn given_up_wal(number: u32) -> String {
    format!("{WAL}{GIVEN_UP}-{number}")
}

/// What a file in the folder of a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionFile {
    /// The segment that begins at this offset.
    Segment(Offset),
    /// The offset index of the segment that begins at this offset.
    Index(Offset),
    /// The time index of the segment that begins at this offset.
    TimeIndex(Offset),
}

impl PartitionFile {
    /// The first offset of the segment that it is or belongs to.
    pub fn base(self) -> Offset {
        match self {
            Self::Segment(base) | Self::Index(base) | Self::TimeIndex(base) => base,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Segment(base) => numbered(base.get(), LOG),
            Self::Index(base) => numbered(base.get(), INDEX),
            Self::TimeIndex(base) => numbered(base.get(), TIME_INDEX),
        }
    }

    /// The file with this name, if it is one of a partition's.
    pub fn parse(name: &str) -> Option<Self> {
        let base = |number| Offset::new(number);
        if let Some(number) = parse_numbered(name, LOG) {
            base(number).map(Self::Segment)
        } else if let Some(number) = parse_numbered(name, INDEX) {
            base(number).map(Self::Index)
        } else {
            base(parse_numbered(name, TIME_INDEX)?).map(Self::TimeIndex)
        }
    }
}

/// The folder of a partition.
pub fn partition_folder(id: PartitionId) -> String {
    format!("{}-{}", id.topic, id.partition)
}

/// The partition whose folder has this name.
pub fn parse_partition_folder(name: &str) -> Option<PartitionId> {
    let (topic, rest) = name.split_at_checked(UUID_CHARS)?;
    let partition = rest.strip_prefix('-')?.parse().ok()?;
    let topic = TopicId(uuid::Uuid::try_parse(topic).ok()?.into_bytes());
    let id = PartitionId { topic, partition };
    (partition_folder(id) == name).then_some(id)
}

/// The checkpoint of this sequence.
pub fn checkpoint(sequence: Sequence) -> String {
    numbered(sequence.get(), CHECKPOINT)
}

/// The sequence of the checkpoint with this name.
pub fn parse_checkpoint(name: &str) -> Option<Sequence> {
    parse_numbered(name, CHECKPOINT).map(Sequence::new)
}

/// The name under which a file is written before it takes its own.
pub fn temporary(name: &str) -> String {
    format!("{name}{TMP}")
}

/// The own name of a file that was being written, if `name` is a temporary one.
pub fn parse_temporary(name: &str) -> Option<&str> {
    name.strip_suffix(TMP)
}

/// `number` in 20 digits, so that names sort as numbers do.
fn numbered(number: u64, suffix: &str) -> String {
    format!("{number:0DIGITS$}{suffix}")
}

fn parse_numbered(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_partition_files_read_back_and_sort_as_their_offsets() {
        let bases = [0, 9, 10, 4_294_967_296, Offset::MAX.get()];
        for make in [
            PartitionFile::Segment,
            PartitionFile::Index,
            PartitionFile::TimeIndex,
        ] {
            let files = bases.map(|base| make(Offset::new(base).unwrap()));
            let names = files.map(PartitionFile::name);
            assert!(names.is_sorted());
            assert_eq!(
                names.clone().map(|name| PartitionFile::parse(&name)),
                files.map(Some)
            );
        }
        assert_eq!(
            PartitionFile::Segment(Offset::ZERO).name(),
            "00000000000000000000.log"
        );
    }

    #[test]
    fn names_that_are_not_written_here_are_not_recognised() {
        for name in [
            "",
            ".log",
            "0.log",
            "00000000000000000000.logs",
            "00000000000000000000.log.tmp",
            "+0000000000000000000.log",
            "0000000000000000000a.index",
            "000000000000000000000.index",
            "99999999999999999999.log",
            "09999999999999999999.timeindex",
        ] {
            assert_eq!(PartitionFile::parse(name), None, "{name}");
            assert_eq!(parse_checkpoint(name), None, "{name}");
        }
    }

    #[test]
    fn partition_folders_read_back_and_other_spellings_are_refused() {
        let id = PartitionId {
            topic: TopicId([0xab; 16]),
            partition: 7,
        };
        let name = partition_folder(id);
        assert_eq!(name, "abababab-abab-abab-abab-abababababab-7");
        assert_eq!(parse_partition_folder(&name), Some(id));
        let upper = name.to_uppercase();
        for name in [
            upper.as_str(),
            &name[..36],
            &name[..37],
            "x-7",
            &name.replace("-7", "-07"),
        ] {
            assert_eq!(parse_partition_folder(name), None, "{name}");
        }
    }

    #[test]
    fn names_of_the_write_ahead_log_read_back() {
        for number in [0, 1, u64::MAX] {
            for file in [
                WalFile::Log(number),
                WalFile::Spare(number),
                WalFile::Torn(number),
            ] {
                assert_eq!(WalFile::parse(&file.name()), Some(file));
                assert_eq!(WalFile::parse(&temporary(&file.name())), None);
            }
        }
        assert_eq!(WalFile::Log(7).name(), "00000000000000000007.wal");
        assert_eq!(WalFile::parse("7.wal"), None);
    }

    #[test]
    fn checkpoint_and_temporary_names_read_back() {
        let name = checkpoint(Sequence::new(42));
        assert_eq!(name, "00000000000000000042.ckpt");
        assert_eq!(parse_checkpoint(&name), Some(Sequence::new(42)));
        assert_eq!(parse_temporary(&temporary(&name)), Some(name.as_str()));
        assert_eq!(parse_temporary(&name), None);
    }
}
