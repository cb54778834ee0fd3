//! Files and folders: what is settled, and what has happened since.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fault::broken;
use super::image::{Image, PAGE_BYTES};
use crate::mapped::{PAGE_WORDS, Page, empty_page};

/// Index of a node; never used again.
pub(super) type NodeId = usize;

/// Bytes that reach the device together or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;
const WORD_BYTES: usize = 8;

/// A changed word of a mapped file: where it is, and its new bytes.
pub(super) type Word = (u64, [u8; WORD_BYTES]);

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

/// When an operation happened: a count over the whole disk.
pub(super) type Stamp = u64;

/// What happened to a file.
#[derive(Debug, Clone)]
pub(super) enum FileOp {
    Write {
        position: u64,
        bytes: Arc<[u8]>,
    },
    /// The file has this length from then on.
    Length(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    /// What is read now, but for mapped pages.
    live: Image,
    pub(super) durable: Image,
    pub(super) pending: Vec<(Stamp, FileOp)>,
    /// A sync failed: some of what is read now will never be written.
    lost: bool,
    /// Something was lost, and no sync of this file has said so yet.
    unreported: bool,
    /// Mapped pages, from the start of the file; the truth about what they cover.
    pages: Vec<Arc<Page>>,
}

impl FileNode {
    pub(super) fn settled(image: Image) -> Self {
        Self {
            live: image.clone(),
            durable: image,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.live.len()
    }

    pub(super) fn is_mapped(&self) -> bool {
        !self.pages.is_empty()
    }

    pub(super) fn read(&mut self, into: &mut [u8], position: u64) -> usize {
        self.take_words();
        self.live.read(into, position)
    }

    pub(super) fn write(&mut self, from: &[u8], position: u64, stamp: Stamp) {
        self.take_words();
        let longer = position + from.len() as u64 > self.live.len();
        self.live.write(from, position);
        self.pending.push((
            stamp,
            FileOp::Write {
                position,
                bytes: from.into(),
            },
        ));
        if longer {
            self.pending.push((stamp, FileOp::Length(self.live.len())));
        }
        self.give_words();
    }

    pub(super) fn set_len(&mut self, bytes: u64, stamp: Stamp) {
        self.live.set_len(bytes);
        self.pending.push((stamp, FileOp::Length(bytes)));
    }

    pub(super) fn sync(&mut self) {
        self.take_words();
        if self.lost {
            // What was lost stays lost: only what came later reaches the device.
            let mut image = self.durable.clone();
            for (_, op) in &self.pending {
                op.apply(&mut image);
            }
            self.durable = image;
        } else {
            self.durable = self.live.clone();
        }
        self.pending.clear();
    }

    pub(super) fn fail_sync(&mut self) {
        self.take_words();
        self.lost = true;
        self.pending.clear();
    }

    /// What is not settled is lost on its way to the device.
    pub(super) fn lose_pending(&mut self) {
        if !self.pending.is_empty() {
            self.fail_sync();
            self.unreported = true;
        }
    }

    /// Fails, once, if something was lost.
    pub(super) fn report_loss(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unreported) {
            Err(broken())
        } else {
            Ok(())
        }
    }

    pub(super) fn drop_cache(&mut self) {
        if !self.lost {
            return;
        }
        self.live = self.durable.clone();
        for (_, op) in &self.pending {
            op.apply(&mut self.live);
        }
        self.give_words();
        self.lost = false;
    }

    /// Pages that cover the first `bytes`.
    pub(super) fn map(&mut self, bytes: u64) -> Arc<[Arc<Page>]> {
        let needed = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .div_ceil(PAGE_BYTES);
        self.take_words();
        while self.pages.len() < needed {
            self.pages.push(Arc::new(empty_page()));
        }
        self.give_words();
        self.pages.iter().take(needed).cloned().collect()
    }

    /// Copies what was stored in mapped words to what is read.
    fn take_words(&mut self) {
        let mut at = 0;
        for page in &self.pages {
            let mut bytes = [0; PAGE_BYTES];
            for (word, into) in page.iter().zip(bytes.chunks_exact_mut(WORD_BYTES)) {
                let value = u64::from_le(word.load(Ordering::Acquire));
                into.copy_from_slice(&value.to_le_bytes());
            }
            let within = self.live.len().saturating_sub(at).min(PAGE_BYTES as u64);
            let within = usize::try_from(within).unwrap_or(PAGE_BYTES);
            self.live.write(bytes.get(..within).unwrap_or_default(), at);
            at += PAGE_BYTES as u64;
        }
    }

    /// Copies what is read to the mapped words.
    fn give_words(&mut self) {
        let mut at = 0;
        for page in &self.pages {
            let mut bytes = [0; PAGE_BYTES];
            self.live.read(&mut bytes, at);
            for (word, from) in page.iter().zip(bytes.chunks_exact(WORD_BYTES)) {
                let value = from.try_into().map_or(0, u64::from_le_bytes);
                word.store(value.to_le(), Ordering::Release);
            }
            at += PAGE_BYTES as u64;
        }
    }

    /// Mapped words that may be new or old after a power loss.
    pub(super) fn stored_words(&mut self) -> Vec<Word> {
        self.take_words();
        let words = (self.pages.len() * PAGE_WORDS) as u64;
        let mut changed = Vec::new();
        for position in (0..words).map(|word| word * WORD_BYTES as u64) {
            let (mut old, mut new) = ([0; WORD_BYTES], [0; WORD_BYTES]);
            self.durable.read(&mut old, position);
            self.live.read(&mut new, position);
            if old != new {
                changed.push((position, new));
            }
        }
        changed
    }

    /// What another process finds: nothing is mapped, what was stored is like what was written.
    pub(super) fn after_kill(&mut self, stamp: Stamp) -> Self {
        let stored = self.stored_words();
        let mut node = Self {
            pages: Vec::new(),
            unreported: false,
            ..self.clone()
        };
        for (position, value) in stored {
            node.pending.push((
                stamp,
                FileOp::Write {
                    position,
                    bytes: Arc::new(value),
                },
            ));
        }
        node
    }
}

impl FileOp {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { position, bytes } => image.write(bytes, *position),
            Self::Length(bytes) => image.set_len(*bytes),
        }
    }
}

/// What happened to the names in a folder.
#[derive(Debug, Clone)]
pub(super) enum DirOp {
    Link {
        name: String,
        node: NodeId,
    },
    Unlink {
        name: String,
        node: NodeId,
    },
    Rename {
        from: String,
        to: String,
        node: NodeId,
    },
}

pub(super) type Names = BTreeMap<String, NodeId>;

#[derive(Debug, Clone, Default)]
pub(super) struct DirNode {
    pub(super) live: Names,
    pub(super) durable: Names,
    pub(super) pending: Vec<(Stamp, DirOp)>,
}

impl DirNode {
    pub(super) fn settled(names: Names) -> Self {
        Self {
            live: names.clone(),
            durable: names,
            pending: Vec::new(),
        }
    }

    pub(super) fn change(&mut self, op: DirOp, stamp: Stamp) {
        op.apply(&mut self.live);
        self.pending.push((stamp, op));
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.live.clone();
        self.pending.clear();
    }
}

impl DirOp {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Link { name, node } => {
                names.insert(name.clone(), *node);
            }
            Self::Unlink { name, node } => remove(names, name, *node),
            Self::Rename { from, to, node } => {
                remove(names, from, *node);
                names.insert(to.clone(), *node);
            }
        }
    }
}

fn remove(names: &mut Names, name: &str, node: NodeId) {
    if names.get(name) == Some(&node) {
        names.remove(name);
    }
}
