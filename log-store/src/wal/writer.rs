//! Writes the log.
//!
//! Invariants:
//! - sequences are consecutive, and frames lie one behind the other in files of rising number;
//! - a [`SyncJob`] answers with the last sequence that was written when it was taken, once every
//!   file that holds a frame up to there, and was not synced since, is synced;
//! - after an error that is final nothing more is written or synced, by anyone.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::error::WalError;
use super::file::{FILE_HEADER_BYTES, LogFile};
use super::frame::{self, FRAME_HEADER_BYTES, Frame, FramePlace};
use super::reader::WalReader;
use super::recycle::{Maker, PrepareJob, Slot};
use super::sync::{Shared, SyncJob};
use super::tail::{TailReport, cut_off};
use crate::Sequence;
use crate::limits::{WAL_FRAME_BULKS_MAX, WAL_FRAME_BYTES_MAX};

/// How the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalConfig {
    /// Size of a file, rounded up to 4 KiB. A larger frame gets a larger file of its own.
    pub file_bytes: u64,
}

/// The writing end of the log.
#[derive(Debug)]
pub struct Wal {
    active: Active,
    /// Files before the active one, oldest first.
    closed: VecDeque<Closed>,
    /// Files that were taken and not used, in order.
    taken: VecDeque<LogFile>,
    maker: Maker,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    next: Sequence,
    durable: Sequence,
    written_bytes: u64,
    bytes_since_checkpoint: u64,
    kept_bytes: u64,
}

/// The file that is written.
#[derive(Debug)]
struct Active {
    log: LogFile,
    /// Where the next frame goes.
    position: u64,
    /// Where the last one is; 0 if there is none.
    previous: u32,
}

/// A file that is full.
#[derive(Debug)]
struct Closed {
    number: u64,
    bytes: u64,
    last: Sequence,
}

/// Frames that go into one file.
struct Run {
    frames: Range<usize>,
    /// Whether the file is another than that of the run before.
    rolls: bool,
}

impl Wal {
    /// Goes on behind what `reader` has read to the end.
    pub(super) fn after(
        mut reader: WalReader,
        config: WalConfig,
    ) -> Result<(Self, TailReport), WalError> {
        let ended = reader.ended.take().unwrap_or_default();
        let next = reader.next.max(reader.from);
        let removed = ended
            .cut
            .as_ref()
            .map(|cut| cut.files.clone())
            .unwrap_or_default();
        let mut report = TailReport {
            last: next.before(),
            frames: reader.frames,
            cut: None,
        };
        if let (Some(cut), Some((log, _))) = (ended.cut, reader.files.get(reader.cursor.file)) {
            report.cut = Some(cut_off(&reader.dir, log, reader.cursor.position, &cut)?);
        }
        reader.files.retain(|(log, _)| !removed.contains(&log.name));
        let last_read = reader.cursor.file.saturating_add(1);
        for (log, _) in reader.files.iter().take(last_read).skip(reader.start) {
            log.file.sync_data().map_err(log.io("sync"))?;
        }
        let wal = Self::open(reader, config, next)?;
        Ok((wal, report))
    }

    fn open(reader: WalReader, config: WalConfig, next: Sequence) -> Result<Self, WalError> {
        let file_bytes = config.file_bytes.max(2 * FILE_HEADER_BYTES);
        let file_bytes = file_bytes.next_multiple_of(FILE_HEADER_BYTES);
        let logs = reader.files.iter().map(|(log, _)| log).collect::<Vec<_>>();
        let mut maker = Maker::open(Arc::clone(&reader.dir), reader.folder, file_bytes, &logs)?;
        let cursor = reader.cursor;
        let mut closed = VecDeque::new();
        let mut active = None;
        let mut ready = VecDeque::new();
        let firsts = reader
            .files
            .iter()
            .map(|(_, first)| *first)
            .collect::<Vec<_>>();
        for (file, (log, _)) in reader.files.into_iter().enumerate() {
            let is_end = file == cursor.file;
            let fits = next == reader.next || cursor.position == FILE_HEADER_BYTES;
            if is_end && fits {
                let previous = cursor.previous.unwrap_or_default();
                active = Some(Active {
                    log,
                    position: cursor.position,
                    previous,
                });
            } else if file <= cursor.file {
                let later = firsts.iter().skip(file + 1).find_map(|first| *first);
                let last = later.filter(|_| !is_end).unwrap_or(reader.next).before();
                closed.push_back(Closed {
                    number: log.header.number,
                    bytes: log.bytes,
                    last,
                });
            } else {
                ready.push_back(log);
            }
        }
        let kept_bytes = closed.iter().map(|file| file.bytes).sum();
        let active = match active
            .map(Ok)
            .or_else(|| ready.pop_front().map(Active::empty).map(Ok))
        {
            Some(active) => active?,
            None => Active::empty(maker.plan(0, next).run()?),
        };
        let durable = if reader.placed > reader.durable {
            reader.durable
        } else {
            next.before()
        };
        Ok(Self {
            active,
            closed,
            taken: ready,
            maker,
            slot: Arc::new(Slot::with(None)),
            shared: Arc::new(Shared::default()),
            next,
            durable,
            written_bytes: 0,
            bytes_since_checkpoint: reader.bytes,
            kept_bytes,
        })
    }

    /// Writes `frames` behind all others, under consecutive sequences; the answer is that of the
    /// last. They are durable after a [`SyncJob`] taken after this. A refusal
    /// ([`WalError::NoSpace`], [`WalError::NoDescriptor`], [`WalError::TooLarge`]) writes nothing;
    /// any other error is final.
    pub fn append(&mut self, frames: &[Frame]) -> Result<Sequence, WalError> {
        self.shared.check()?;
        let sizes = frames
            .iter()
            .map(frame::payload_bytes)
            .collect::<Option<Vec<u32>>>();
        let sizes = sizes.ok_or(WalError::TooLarge {
            bytes_max: WAL_FRAME_BYTES_MAX,
            bulks_max: WAL_FRAME_BULKS_MAX,
        })?;
        let runs = self.plan(&sizes).map_err(|error| self.shared.fail(error))?;
        for run in runs {
            if run.rolls {
                self.roll();
            }
            let frames = frames.get(run.frames.clone()).unwrap_or_default();
            let sizes = sizes.get(run.frames).unwrap_or_default();
            self.write(frames, sizes)
                .map_err(|error| self.shared.fail(error))?;
        }
        Ok(self.next.before())
    }

    /// Shares frames out among files, and takes the files that are needed, before anything is
    /// written.
    fn plan(&mut self, sizes: &[u32]) -> Result<Vec<Run>, WalError> {
        let mut runs = Vec::new();
        let mut run = Run {
            frames: 0..0,
            rolls: false,
        };
        let mut room = self.active.log.bytes.saturating_sub(self.active.position);
        let mut taken = 0;
        for (frame, size) in sizes.iter().enumerate() {
            let bytes = frame::frame_bytes(*size);
            if bytes > room {
                if !run.frames.is_empty() || run.rolls {
                    runs.push(run);
                }
                run = Run {
                    frames: frame..frame,
                    rolls: true,
                };
                room = self.take(taken, bytes)?;
                taken += 1;
            }
            room -= bytes;
            run.frames.end = frame + 1;
        }
        runs.push(run);
        Ok(runs)
    }

    /// Makes sure that the `nth` taken file is there and holds a frame of `bytes`; the answer is
    /// its room.
    fn take(&mut self, nth: usize, bytes: u64) -> Result<u64, WalError> {
        let needed = FILE_HEADER_BYTES + bytes;
        if self.taken.get(nth).is_none() {
            self.taken.extend(self.slot.take());
        }
        if self.taken.get(nth).is_some_and(|log| log.bytes < needed) {
            // Files are used in the order of their numbers, so one that is too small, and those
            // behind it, cannot wait for a smaller frame.
            let small = self.taken.split_off(nth);
            let small = small.iter().map(|log| (log.header.number, log.bytes));
            self.maker.retire(&small.collect::<Vec<_>>())?;
        }
        if self.taken.get(nth).is_none() {
            self.taken
                .push_back(self.maker.plan(needed, self.next).run()?);
        }
        let log = self.taken.get(nth);
        Ok(log.map_or(0, |log| log.bytes.saturating_sub(FILE_HEADER_BYTES)))
    }

    /// Goes over to the file that was taken first.
    fn roll(&mut self) {
        let Some(log) = self.taken.pop_front() else {
            return;
        };
        let full = std::mem::replace(&mut self.active, Active::empty(log)).log;
        self.kept_bytes += full.bytes;
        self.closed.push_back(Closed {
            number: full.header.number,
            bytes: full.bytes,
            last: self.next.before(),
        });
    }

    /// Writes frames, which fit, into the active file, in one call.
    fn write(&mut self, frames: &[Frame], sizes: &[u32]) -> Result<(), WalError> {
        if frames.is_empty() {
            return Ok(());
        }
        let log = &self.active.log;
        let begin = self.active.position;
        let mut place = FramePlace {
            position: begin,
            previous: self.active.previous,
            sequence: self.next,
            durable: self.durable,
            payload_bytes: 0,
        };
        let mut prefixes = Vec::with_capacity(frames.len() * FRAME_HEADER_BYTES);
        let mut prefix_ends = Vec::with_capacity(frames.len());
        for (frame, size) in frames.iter().zip(sizes) {
            place.payload_bytes = *size;
            frame::encode(frame, place, &log.chain, &mut prefixes);
            prefix_ends.push(prefixes.len());
            place.previous = u32::try_from(place.position).unwrap_or(u32::MAX);
            place.position += frame::frame_bytes(*size);
            place.sequence = place.sequence.next();
        }
        let parts = parts_of(frames, sizes, &prefixes, &prefix_ends);
        let file = Arc::clone(&log.file);
        file.write_vectored_at(&parts, begin)
            .map_err(log.io("write"))?;
        self.shared
            .note_written(&self.active.log, self.next, place.sequence.before());
        self.active.position = place.position;
        self.active.previous = place.previous;
        self.next = place.sequence;
        self.written_bytes += place.position - begin;
        self.bytes_since_checkpoint += place.position - begin;
        Ok(())
    }

    /// What the next frame's sequence will be.
    pub fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// A sync of all that is written by now, to be run on any thread. Appends may go on meanwhile.
    pub fn sync_job(&mut self) -> SyncJob {
        SyncJob::new(Arc::clone(&self.shared), self.next.before())
    }

    /// A job that makes the next file ready, when there is none and none is on its way.
    pub fn prepare_job(&mut self) -> Option<PrepareJob> {
        let wanted = self.taken.is_empty() && self.shared.check().is_ok() && self.slot.begin();
        wanted.then(|| {
            let making = self.maker.plan(0, self.next);
            PrepareJob::new(making, Arc::clone(&self.slot), Arc::clone(&self.shared))
        })
    }

    /// Notes that everything up to `through`, placed batches too, is on disk. Frames written from
    /// now on say so, and that is how damage is later told from a torn tail.
    pub fn note_durable(&mut self, through: Sequence) {
        self.durable = self.durable.max(through.min(self.next.before()));
    }

    /// Gives up the files that hold no frame from `keep_from` on.
    pub fn release_before(&mut self, keep_from: Sequence) -> Result<(), WalError> {
        self.shared.check()?;
        let mut files = Vec::new();
        while let Some(file) = self.closed.pop_front_if(|file| file.last < keep_from) {
            self.kept_bytes -= file.bytes;
            files.push((file.number, file.bytes));
        }
        self.bytes_since_checkpoint = 0;
        self.maker
            .retire(&files)
            .map_err(|error| self.shared.fail(error))
    }

    /// Bytes of frames written by this process.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Bytes of frames written, or read at the start, since [`Wal::release_before`] was called
    /// last.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.bytes_since_checkpoint
    }

    /// Bytes of the files that hold frames; spare and ready files are not counted.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.saturating_add(self.active.log.bytes)
    }
}

impl Active {
    fn empty(log: LogFile) -> Self {
        Self {
            log,
            position: FILE_HEADER_BYTES,
            previous: 0,
        }
    }
}

/// The slices of frames in the order in which they lie in the file.
fn parts_of<'a>(
    frames: &'a [Frame],
    sizes: &[u32],
    prefixes: &'a [u8],
    prefix_ends: &[usize],
) -> Vec<&'a [u8]> {
    const PADDING: [u8; 8] = [0; 8];
    let mut parts = Vec::with_capacity(frames.len() * 3);
    let mut begin = 0;
    for ((frame, size), end) in frames.iter().zip(sizes).zip(prefix_ends) {
        parts.push(prefixes.get(begin..*end).unwrap_or_default());
        begin = *end;
        parts.push(frame.head.as_ref());
        parts.extend(frame::inline(frame).map(AsRef::as_ref));
        let unpadded = FRAME_HEADER_BYTES as u64 + u64::from(*size);
        let padding = usize::try_from(frame::frame_bytes(*size) - unpadded).unwrap_or_default();
        parts.push(PADDING.get(..padding).unwrap_or_default());
    }
    parts
}
