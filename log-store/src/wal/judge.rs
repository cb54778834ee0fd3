//! What lies behind the last good frame: a torn tail, or nothing.

use super::error::WalError;
use super::file::{FILE_HEADER_BYTES, LogFile};
use super::frame::{FRAME_ALIGN, FRAME_HEADER_BYTES};
use super::scan::scan;
use super::tail::CutReason;
use crate::Sequence;

/// A place without a good frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bad {
    /// Whether something was written there in this use of the file.
    pub(super) written: bool,
    /// Where that ends.
    pub(super) end: u64,
    pub(super) reason: CutReason,
}

impl Bad {
    pub(super) fn nothing(position: u64) -> Self {
        Self {
            written: false,
            end: position,
            reason: CutReason::Torn,
        }
    }

    pub(super) fn torn(end: u64) -> Self {
        Self {
            written: true,
            end,
            reason: CutReason::Torn,
        }
    }
}

/// How the log ends.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// What is to be cut off; nothing at a clean end.
    pub(super) cut: Option<Cut>,
    /// The furthest durable end that is stated behind the end.
    pub(super) durable: Sequence,
    /// Whether a file that may hold something behind the end lost its own.
    pub(super) shortened: bool,
}

/// What is to be cut off.
#[derive(Debug, Clone)]
pub(super) struct Cut {
    pub(super) reason: CutReason,
    /// Where it ends in the file that the log ends in.
    pub(super) end: u64,
    /// Its bytes, in all files.
    pub(super) bytes: u64,
    /// How many whole frame headers there are behind the first bad place.
    pub(super) frames: u64,
    /// Names of later files that hold some of it.
    pub(super) files: Vec<String>,
}

/// Looks at all behind `position` in the first of `logs`, and at all of the others.
pub(super) fn judge(logs: &[&LogFile], position: u64, bad: Bad) -> Result<Ended, WalError> {
    let mut cut = Cut {
        reason: bad.reason,
        end: bad.end,
        bytes: 0,
        frames: 0,
        files: Vec::new(),
    };
    let mut ended = Ended::default();
    let header_bytes = FRAME_HEADER_BYTES as u64;
    for (file, log) in logs.iter().enumerate() {
        let from = if file == 0 {
            position
        } else {
            FILE_HEADER_BYTES
        };
        let behind = if file == 0 && bad.written {
            from + FRAME_ALIGN
        } else {
            from
        };
        let found = scan(log, behind)?;
        let known_end = if file == 0 {
            found.end.max(bad.end)
        } else {
            found.end
        };
        ended.durable = ended.durable.max(found.durable);
        ended.shortened |=
            log.is_shortened() && (from + header_bytes > log.bytes || known_end > log.bytes);
        let end = known_end.min(log.bytes);
        cut.frames += found.frames;
        cut.bytes += end.saturating_sub(from);
        if file == 0 {
            cut.end = end;
        } else if end > from {
            cut.files.push(log.name.clone());
        }
    }
    ended.cut = (cut.bytes > 0).then_some(cut);
    Ok(ended)
}
