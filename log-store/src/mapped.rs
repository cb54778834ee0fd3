//! A preallocated file, or plain memory, as a row of atomic words.
//!
//! This is the only module of the workspace with `unsafe` code. What must hold:
//!
//! - A mapped file is really allocated and is never shortened while it is, or was, mapped: a
//!   touched page always has its block, so that no access can fault.
//! - Nothing but words leaves this module: no slice, no pointer. Other mappings of the same file,
//!   in this process or another, can therefore change a word but break no rule of the language.
//! - An index out of range is an answer, not a panic.
//!
//! Words are little-endian in the file.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Bytes of one word.
pub const WORD_BYTES: u64 = 8;
/// Words of one page of plain memory: 4 KiB.
pub(crate) const PAGE_WORDS: usize = 512;

/// One page of plain memory.
pub(crate) type Page = [AtomicU64; PAGE_WORDS];

/// Words shared with a file, or held in plain memory. A clone is cheap and shares the words; the
/// mapping goes when the last clone does.
#[derive(Clone)]
pub struct Mapped {
    words: u64,
    source: Source,
}

#[derive(Clone)]
enum Source {
    File(Arc<MmapRaw>),
    Memory(Arc<[Arc<Page>]>),
}

/// An access behind the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("word {index} is out of range: the map has {words}")]
pub struct WordOutOfRange {
    /// The word asked for, from 0.
    pub index: u64,
    /// How many there are.
    pub words: u64,
}

impl Mapped {
    /// Maps the first `bytes` of `file`, a multiple of 8 and no more than its length.
    pub(crate) fn of_file(file: &std::fs::File, bytes: u64) -> io::Result<Self> {
        let words = words_of(bytes)?;
        if file.metadata()?.len() < bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the map is longer than its file",
            ));
        }
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        let map = MmapOptions::new().len(len).map_raw(file)?;
        Ok(Self {
            words,
            source: Source::File(Arc::new(map)),
        })
    }

    /// `bytes` of zeros in plain memory, a multiple of 8.
    pub fn in_memory(bytes: u64) -> io::Result<Self> {
        let words = words_of(bytes)?;
        let pages = usize::try_from(words)
            .map_err(io::Error::other)?
            .div_ceil(PAGE_WORDS);
        Self::of_pages((0..pages).map(|_| Arc::new(empty_page())).collect(), bytes)
    }

    /// Plain memory made of pages that others may share.
    pub(crate) fn of_pages(pages: Arc<[Arc<Page>]>, bytes: u64) -> io::Result<Self> {
        let words = words_of(bytes)?;
        let needed = usize::try_from(words)
            .map_err(io::Error::other)?
            .div_ceil(PAGE_WORDS);
        if pages.len() < needed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too few pages for the map",
            ));
        }
        Ok(Self {
            words,
            source: Source::Memory(pages),
        })
    }

    /// How many words there are.
    pub fn len_words(&self) -> u64 {
        self.words
    }

    /// The word at `index`; what was stored before it by the same thread is seen too (acquire).
    /// Nothing when `index` is out of range.
    pub fn load(&self, index: u64) -> Option<u64> {
        self.word(index)
            .map(|word| u64::from_le(word.load(Ordering::Acquire)))
    }

    /// Sets the word at `index`; whoever loads it sees what this thread stored before (release).
    pub fn store(&self, index: u64, value: u64) -> Result<(), WordOutOfRange> {
        let word = self.word(index).ok_or(WordOutOfRange {
            index,
            words: self.words,
        })?;
        word.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[expect(unsafe_code, reason = "a mapped word is reached through a pointer")]
    fn word(&self, index: u64) -> Option<&AtomicU64> {
        if index >= self.words {
            return None;
        }
        let at = usize::try_from(index).ok()?;
        match &self.source {
            Source::Memory(pages) => pages.get(at / PAGE_WORDS)?.get(at % PAGE_WORDS),
            Source::File(map) => {
                #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
                let first = map.as_mut_ptr().cast::<AtomicU64>();
                let word = first.wrapping_add(at);
                // SAFETY: `words` times 8 bytes were mapped readable and writable and stay so
                // while `self` lives; `index` is below `words`, so the word is inside. A mapping
                // begins at a page, so the word is aligned. Any bits are a valid `u64`. In this
                // process these bytes are only ever reached as atomic words.
                Some(unsafe { &*word })
            }
        }
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::File(_) => "file",
            Source::Memory(_) => "memory",
        };
        write!(f, "Mapped({} words of {source})", self.words)
    }
}

/// A page of zeros.
pub(crate) fn empty_page() -> Page {
    [const { AtomicU64::new(0) }; PAGE_WORDS]
}

fn words_of(bytes: u64) -> io::Result<u64> {
    if bytes == 0 || !bytes.is_multiple_of(WORD_BYTES) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a map is one word or more of 8 bytes each",
        ));
    }
    Ok(bytes / WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_words() {
        let one = Mapped::in_memory(64).unwrap();
        let other = one.clone();
        one.store(7, 42).unwrap();
        assert_eq!(other.load(7), Some(42));
        assert_eq!(other.load(0), Some(0));
    }

    #[test]
    fn an_access_behind_the_end_is_refused() {
        let map = Mapped::in_memory(16).unwrap();
        assert_eq!(map.len_words(), 2);
        assert_eq!(map.load(2), None);
        assert_eq!(map.load(u64::MAX), None);
        assert_eq!(map.store(2, 1), Err(WordOutOfRange { index: 2, words: 2 }));
    }

    #[test]
    fn a_size_that_is_not_whole_words_is_refused() {
        for bytes in [0, 1, 7, 9, 4097] {
            assert_eq!(
                Mapped::in_memory(bytes).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }

    #[test]
    fn a_mapped_file_holds_its_words_little_endian() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let map = Mapped::of_file(&file, 4096).unwrap();
        map.store(1, 0x0102_0304_0506_0708).unwrap();
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 8).unwrap();
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(map.load(511), Some(0));
        assert_eq!(map.load(512), None);
    }

    #[test]
    fn a_map_longer_than_its_file_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let error = Mapped::of_file(&file, 4104).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
