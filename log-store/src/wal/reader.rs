//! Reads the log from a sequence to its end.
//!
//! Where no good frame follows, one of these holds, and they are tried in this order:
//!
//! 1. the next file begins with the next sequence: the file was full, reading goes on there;
//! 2. what is missing is not wanted: reading goes on with the first frame that is there;
//! 3. a frame that cannot be read is known to have been on disk: that is damage, see
//!    [`WalError::Corrupt`], and nothing is changed;
//! 4. the log ends before the first frame wanted: what was between is gone, see
//!    [`WalError::Missing`], and nothing is changed;
//! 5. the log ends here. What lies behind was never acknowledged; [`WalReader::into_writer`] cuts
//!    it off.

use std::sync::Arc;

use super::error::{Reach, WalError};
use super::file::{FILE_HEADER_BYTES, LogFile, Window};
use super::frame::{FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, HeaderAt, ReadFrame};
use super::judge::{Bad, Ended, judge};
use super::scan::scan;
use super::tail::{CutReason, TailReport};
use super::writer::{Wal, WalConfig};
use crate::fs::Dir;
use crate::layout::WalFile;
use crate::{FolderId, Sequence};

/// Reads the frames of a log in order, and ends by becoming its [`Wal`].
#[derive(Debug)]
pub struct WalReader {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) folder: FolderId,
    /// By number; each with its first sequence, if it has a frame.
    pub(super) files: Vec<(LogFile, Option<Sequence>)>,
    /// Whether there is no file, but what only a log leaves behind.
    remains: bool,
    pub(super) from: Sequence,
    /// Where the log ended when it was last left cleanly, if it was.
    clean: Option<Sequence>,
    /// The file that reading began in.
    pub(super) start: usize,
    pub(super) cursor: Cursor,
    window: Window,
    /// What the next frame's sequence must be.
    pub(super) next: Sequence,
    /// Whether a frame was found that is not behind the first one wanted.
    begun: bool,
    /// The furthest durable end stated by a frame that was read.
    pub(super) durable: Sequence,
    /// The last frame with a batch that is not in the log itself.
    pub(super) placed: Sequence,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    last: Option<LastFrame>,
    pub(super) ended: Option<Ended>,
}

/// Where the next frame is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) position: u64,
    /// What the frame there must say of the frame before it; nothing if that was skipped.
    pub(super) previous: Option<u32>,
}

impl Cursor {
    fn at_start_of(file: usize) -> Self {
        Self {
            file,
            position: FILE_HEADER_BYTES,
            previous: Some(0),
        }
    }
}

/// The frame that was returned last.
#[derive(Debug, Clone, Copy)]
struct LastFrame {
    cursor: Cursor,
    sequence: Sequence,
    end: u64,
}

enum Step {
    Frame(ReadFrame),
    Bad(Bad),
}

impl WalReader {
    /// Opens the log in the folder `dir` for reading from `from` on, the first frame wanted. 0 and
    /// 1 mean all, and then the log must begin with the first command there ever was. Otherwise it
    /// must reach as far as the command before `from`: who asks has that from elsewhere, and it
    /// was on disk here before.
    pub fn open(dir: Arc<dyn Dir>, folder: FolderId, from: Sequence) -> Result<Self, WalError> {
        let reader = Self::open_at(dir, folder, from.max(Sequence::ZERO.next()))?;
        if let Some(oldest) = reader.oldest().filter(|oldest| *oldest > reader.from) {
            return Err(WalError::Missing {
                wanted: reader.from,
                reach: Reach::From(oldest),
            });
        }
        Ok(reader)
    }

    /// Opens the log for reading from the oldest frame that there is.
    pub fn open_at_oldest(dir: Arc<dyn Dir>, folder: FolderId) -> Result<Self, WalError> {
        let mut reader = Self::open_at(dir, folder, Sequence::ZERO.next())?;
        let first = reader.files.iter().find_map(|(_, first)| *first);
        if let Some(oldest) = first.or(reader.oldest()) {
            reader.from = oldest;
            reader.next = oldest;
        }
        // Nothing is wanted beyond what there is.
        reader.begun = true;
        reader.remains = false;
        Ok(reader)
    }

    fn open_at(dir: Arc<dyn Dir>, folder: FolderId, from: Sequence) -> Result<Self, WalError> {
        let names = dir.list().map_err(WalError::io("list", "."))?;
        let files = open_files(&dir, &names, folder)?;
        let begins = |first: &Option<Sequence>| first.is_some_and(|first| first <= from);
        let found = files.iter().rposition(|(_, first)| begins(first));
        let start = found.unwrap_or_default();
        let next = files.get(start).map_or(from, |(log, first)| {
            first.unwrap_or(log.header.next_when_made.min(from))
        });
        Ok(Self {
            dir,
            folder,
            remains: files.is_empty() && names.iter().any(|name| WalFile::parse(name).is_some()),
            files,
            from,
            clean: None,
            start,
            cursor: Cursor::at_start_of(start),
            window: Window::default(),
            next,
            begun: found.is_some(),
            durable: Sequence::ZERO,
            placed: Sequence::ZERO,
            frames: 0,
            bytes: 0,
            last: None,
            ended: None,
        })
    }

    /// The first sequence that may be in the log; nothing when it has no file.
    fn oldest(&self) -> Option<Sequence> {
        let (log, first) = self.files.first()?;
        Some(first.unwrap_or(log.header.next_when_made))
    }

    /// Says that the log was left cleanly with `through` as its last sequence: all up to it is
    /// there, or it is damage.
    pub fn expect_clean_end(&mut self, through: Sequence) {
        self.clean = Some(through);
    }

    /// Says that a log was kept in this folder before: if it has no file, that is damage.
    pub fn expect_a_file(&mut self) {
        self.remains |= self.files.is_empty();
    }

    /// The next frame; nothing at the end of the log.
    pub fn next_frame(&mut self) -> Result<Option<ReadFrame>, WalError> {
        while self.ended.is_none() && !self.files.is_empty() {
            match self.step()? {
                Step::Frame(frame) if frame.sequence >= self.from => {
                    self.frames += 1;
                    return Ok(Some(frame));
                }
                Step::Frame(_) => {}
                Step::Bad(bad) => self.turn(bad)?,
            }
        }
        if self.files.is_empty() {
            self.check_reach()?;
        }
        Ok(None)
    }

    /// Fails when the log ends before what is wanted of it, or has nothing where there must be
    /// something. A clean stop right before what is wanted leaves nothing to be missed.
    fn check_reach(&self) -> Result<(), WalError> {
        let is_first_start = self.from == Sequence::ZERO.next() && !self.remains;
        let has_reached = is_first_start || (self.begun && self.next >= self.from);
        let fine = match self.clean {
            Some(clean) if clean.next() == self.from => true,
            Some(clean) if self.files.is_empty() && clean >= self.from => false,
            _ => has_reached,
        };
        if fine {
            return Ok(());
        }
        let last = self.next.before();
        Err(WalError::Missing {
            wanted: self.from,
            reach: if self.begun {
                Reach::Through(last)
            } else {
                Reach::Nothing
            },
        })
    }

    /// Ends the log before the frame that was returned last, because a batch that it names is not
    /// in its place. Fails, and changes nothing, when that frame is known to have been on disk
    /// with all it names.
    pub fn refuse_last(&mut self) -> Result<(), WalError> {
        let Some(last) = self.last.take() else {
            return Ok(());
        };
        self.cursor = last.cursor;
        self.next = last.sequence;
        self.frames = self.frames.saturating_sub(1);
        let bad = Bad {
            written: true,
            end: last.end,
            reason: CutReason::Refused,
        };
        self.end(bad)
    }

    /// Turns into the writer, which stands behind the last good frame. What lies behind that is
    /// cut off, what is kept is on disk before this returns. Frames not yet read are skipped.
    pub fn into_writer(mut self, config: WalConfig) -> Result<(Wal, TailReport), WalError> {
        while self.next_frame()?.is_some() {}
        Wal::after(self, config)
    }

    fn step(&mut self) -> Result<Step, WalError> {
        let cursor = self.cursor;
        let Some((log, _)) = self.files.get(cursor.file) else {
            return Ok(Step::Bad(Bad::nothing(cursor.position)));
        };
        let at = cursor.position;
        let Some(bytes) = self.window.get(log, at, FRAME_HEADER_BYTES as u64)? else {
            return Ok(Step::Bad(Bad::nothing(at)));
        };
        let header = match FrameHeader::at(&bytes, &log.chain, at, self.next) {
            HeaderAt::Valid(header) => header,
            HeaderAt::Broken => return Ok(Step::Bad(Bad::torn(at + FRAME_HEADER_BYTES as u64))),
            HeaderAt::Other => return Ok(Step::Bad(Bad::nothing(at))),
        };
        let linked = cursor
            .previous
            .is_none_or(|previous| previous == header.previous);
        if header.sequence != self.next || !linked {
            return Err(self.corrupt("a frame there does not follow the one before it"));
        }
        let end = at + header.frame_bytes();
        let payload_at = at + FRAME_HEADER_BYTES as u64;
        let payload = self
            .window
            .get(log, payload_at, header.payload_bytes.into())?;
        let Some(frame) = payload.and_then(|payload| header.open(&payload)) else {
            return Ok(Step::Bad(Bad::torn(end)));
        };
        self.accept(&frame, &header, end);
        Ok(Step::Frame(frame))
    }

    fn accept(&mut self, frame: &ReadFrame, header: &FrameHeader, end: u64) {
        let sequence = header.sequence;
        self.last = Some(LastFrame {
            cursor: self.cursor,
            sequence,
            end,
        });
        if frame.has_placed() {
            self.placed = sequence;
        }
        self.durable = self.durable.max(header.durable);
        self.begun = true;
        self.next = sequence.next();
        if sequence >= self.from {
            self.bytes += header.frame_bytes();
        }
        self.cursor.previous = u32::try_from(self.cursor.position).ok();
        self.cursor.position = end;
    }

    /// No good frame follows: goes on elsewhere, or ends.
    fn turn(&mut self, bad: Bad) -> Result<(), WalError> {
        if let Some((file, _)) = self.later_file().filter(|(_, first)| *first == self.next) {
            self.enter(file);
            return Ok(());
        }
        if self.next < self.from && self.skip()? {
            return Ok(());
        }
        self.end(bad)
    }

    /// The first later file with a frame, and the sequence of that.
    fn later_file(&self) -> Option<(usize, Sequence)> {
        let mut files = self
            .files
            .iter()
            .enumerate()
            .skip(self.cursor.file.saturating_add(1));
        files.find_map(|(file, (_, first))| Some((file, (*first)?)))
    }

    fn enter(&mut self, file: usize) {
        self.cursor = Cursor::at_start_of(file);
        self.window = Window::default();
    }

    /// Passes over frames that are not wanted; whether there is one to go on with.
    fn skip(&mut self) -> Result<bool, WalError> {
        let here = self.cursor.file;
        let mut from = self.cursor.position + FRAME_ALIGN;
        for (file, (log, _)) in self.files.iter().enumerate().skip(here) {
            if let Some((position, header)) = scan(log, from)?.first {
                if !(self.next..=self.from).contains(&header.sequence) {
                    return Ok(false);
                }
                self.enter(file);
                self.cursor = Cursor {
                    file,
                    position,
                    previous: None,
                };
                self.next = header.sequence;
                self.begun = true;
                return Ok(true);
            }
            from = FILE_HEADER_BYTES;
        }
        Ok(false)
    }

    fn end(&mut self, bad: Bad) -> Result<(), WalError> {
        let refused = bad.reason == CutReason::Refused;
        let ends_cleanly = self.clean.is_some_and(|clean| clean.next() == self.next);
        if !refused && ends_cleanly && self.next >= self.from {
            self.ended = Some(Ended::default());
            return Ok(());
        }
        let logs = self.files.iter().map(|(log, _)| log).collect::<Vec<_>>();
        let remains = logs.get(self.cursor.file..).unwrap_or_default();
        let found = judge(remains, self.cursor.position, bad)?;
        let known = self
            .durable
            .max(found.durable)
            .max(self.clean.unwrap_or_default());
        if known >= self.next.max(self.from) {
            return Err(self.corrupt("a frame is gone that was known to be on disk"));
        }
        if found.shortened {
            return Err(self.corrupt("the file is shorter than it was made"));
        }
        self.check_reach()?;
        self.ended = Some(found);
        Ok(())
    }

    fn corrupt(&self, what: &'static str) -> WalError {
        WalError::Corrupt {
            file: self
                .files
                .get(self.cursor.file)
                .map(|(log, _)| log.name.clone())
                .unwrap_or_default(),
            position: self.cursor.position,
            sequence: self.next.max(self.from),
            what,
        }
    }
}

/// Opens every file of the log, by number, and finds the first sequence of each.
fn open_files(
    dir: &Arc<dyn Dir>,
    names: &[String],
    folder: FolderId,
) -> Result<Vec<(LogFile, Option<Sequence>)>, WalError> {
    let numbers = names.iter().filter_map(|name| match WalFile::parse(name)? {
        WalFile::Log(number) => Some(number),
        WalFile::Spare(_) | WalFile::Torn(_) => None,
    });
    let mut files = Vec::new();
    for number in numbers {
        let name = WalFile::Log(number).name();
        let file = dir.open(&name).map_err(WalError::io("open", &name))?;
        let log = LogFile::open(file, number, folder)?;
        let at = FILE_HEADER_BYTES;
        let bytes = log.peek(at, FRAME_HEADER_BYTES as u64)?;
        let first = bytes.and_then(|bytes| FrameHeader::found(&bytes, &log.chain, at));
        files.push((log, first.map(|header| header.sequence)));
    }
    Ok(files)
}
