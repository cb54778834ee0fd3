//! What may happen to the files of a data folder behind the broker's back.

use std::sync::Arc;

use varvelog_store::fs::{Dir, read_whole};
use varvelog_store::sim_fs::SimDisk;

/// Blocks that are zeroed, copied and swapped.
const BLOCKS: [usize; 2] = [512, 4096];
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file: the folders that it is in, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folders: Vec<String>,
    pub(super) name: String,
}

/// What is done to one file.
#[derive(Debug, Clone)]
pub(super) enum Damage {
    FlipBit {
        at: usize,
        bit: u8,
    },
    CutTo(usize),
    ZeroBlock {
        at: usize,
        bytes: usize,
    },
    /// A block of the same file, or of another, over one.
    CopyBlock {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A block and one of another file change places.
    SwapBlock {
        other: usize,
        from: usize,
        to: usize,
        bytes: usize,
    },
    AddGarbage(usize),
    AddZeros(usize),
    Remove,
}

/// A data folder whose broker was killed.
pub(super) struct DataFolder {
    disk: SimDisk,
    pub(super) files: Vec<(Place, Vec<u8>)>,
}

impl DataFolder {
    pub(super) fn of(disk: SimDisk) -> Self {
        let mut files = Vec::new();
        collect(disk.root().as_ref(), &mut Vec::new(), &mut files);
        Self { disk, files }
    }

    /// Every damage that is tried, and the number of the file that it is done to.
    pub(super) fn cases(&self) -> Vec<(usize, Damage)> {
        let mut cases = Vec::new();
        for (number, (_, content)) in self.files.iter().enumerate() {
            let mut add = |damage| cases.push((number, damage));
            for at in 0..content.len() {
                (0..8).for_each(|bit| add(Damage::FlipBit { at, bit }));
                add(Damage::CutTo(at));
            }
            (1..=64).for_each(|bytes| add(Damage::AddGarbage(bytes)));
            (0..=6).for_each(|power| add(Damage::AddZeros(1024 << power)));
            add(Damage::Remove);
            for bytes in BLOCKS {
                self.block_cases(number, bytes, &mut add);
            }
        }
        cases
    }

    fn block_cases(&self, number: usize, bytes: usize, add: &mut impl FnMut(Damage)) {
        let length = self.files[number].1.len();
        let blocks = |length: usize| {
            (0..length)
                .step_by(bytes)
                .filter(move |at| at + bytes <= length)
        };
        for at in (0..length).step_by(bytes) {
            add(Damage::ZeroBlock { at, bytes });
        }
        for to in blocks(length) {
            for from in blocks(length).filter(|from| *from != to) {
                add(Damage::CopyBlock { from, to, bytes });
            }
            for other in number + 1..self.files.len() {
                let others = blocks(self.files[other].1.len());
                others.for_each(|from| {
                    add(Damage::SwapBlock {
                        other,
                        from,
                        to,
                        bytes,
                    });
                });
            }
        }
    }

    /// A disk with the damage, and the files that it is in.
    pub(super) fn with(&self, number: usize, damage: &Damage) -> (SimDisk, Vec<&Place>) {
        let disk = self.disk.process_kill();
        let (place, content) = &self.files[number];
        let mut content = content.clone();
        let mut touched = vec![place];
        match *damage {
            Damage::FlipBit { at, bit } => content[at] ^= 1 << bit,
            Damage::CutTo(length) => content.truncate(length),
            Damage::ZeroBlock { at, bytes } => {
                let end = content.len().min(at + bytes);
                content[at..end].fill(0);
            }
            Damage::CopyBlock { from, to, bytes } => content.copy_within(from..from + bytes, to),
            Damage::SwapBlock {
                other,
                from,
                to,
                bytes,
            } => {
                let (other_place, other_content) = &self.files[other];
                let mut other_content = other_content.clone();
                content[to..to + bytes].swap_with_slice(&mut other_content[from..from + bytes]);
                write(&disk, other_place, &other_content);
                touched.push(other_place);
            }
            Damage::AddGarbage(bytes) => {
                content.extend((0..bytes).map(|at| u8::try_from(at * 37 % 251).unwrap() | 1));
            }
            Damage::AddZeros(bytes) => content.resize(content.len() + bytes, 0),
            Damage::Remove => {
                folder(&disk, place).remove(&place.name).unwrap();
                return (disk, touched);
            }
        }
        write(&disk, place, &content);
        (disk, touched)
    }
}

fn collect(dir: &dyn Dir, folders: &mut Vec<String>, files: &mut Vec<(Place, Vec<u8>)>) {
    for name in dir.list().unwrap() {
        if let Ok(inner) = dir.open_dir(&name) {
            folders.push(name);
            collect(inner.as_ref(), folders, files);
            folders.pop();
            continue;
        }
        let content = read_whole(dir.open(&name).unwrap().as_ref(), FILE_BYTES_MAX).unwrap();
        files.push((
            Place {
                folders: folders.clone(),
                name,
            },
            content,
        ));
    }
}

fn folder(disk: &SimDisk, place: &Place) -> Arc<dyn Dir> {
    let root = disk.root();
    place
        .folders
        .iter()
        .fold(root, |dir, name| dir.open_dir(name).unwrap())
}

fn write(disk: &SimDisk, place: &Place, content: &[u8]) {
    let folder = folder(disk, place);
    folder.remove(&place.name).unwrap();
    let file = folder.create(&place.name).unwrap();
    file.write_at(content, 0).unwrap();
}
