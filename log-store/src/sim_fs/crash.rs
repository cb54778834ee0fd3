//! What a power loss may leave.

use super::disk::{ROOT, SimDisk, State, settled_dir};
use super::image::Image;
use super::node::{FileNode, FileOp, Names, Node, NodeId, SECTOR_BYTES, Stamp, Word};

/// With so many unsettled operations or fewer, every subset is tried.
const SUBSETS_OF_MAX: usize = 12;
/// States drawn when there is unsettled data, and more of them for each part of it.
const STATES_DRAWN_MIN: usize = 32;
const STATES_PER_PART: usize = 8;
const STATES_PER_OPERATION: usize = 4;

/// What is unsettled, in the order in which it happened.
#[derive(Debug, Clone)]
struct Unsettled {
    node: NodeId,
    /// Which of the node's operations.
    at: usize,
    stamp: Stamp,
    /// Bytes of data; nothing for a name or a length.
    data: Option<u64>,
    /// Whether it is a write that made its file longer.
    lengthens: bool,
}

/// What becomes of an unsettled operation.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Kept,
    Dropped,
    /// Each sector goes its own way.
    Torn {
        seed: u64,
        grain: u64,
    },
}

/// Goes through disks as a power loss might leave them; see [`SimDisk::crash_states`].
#[derive(Debug)]
pub struct CrashStates {
    nodes: Vec<Node>,
    unsettled: Vec<Unsettled>,
    /// Changed words of mapped files.
    words: Vec<(NodeId, Vec<Word>)>,
    seed: u64,
    next: usize,
    /// States that are not drawn.
    fixed: usize,
    end: usize,
}

impl CrashStates {
    pub(super) fn new(state: &mut State, seed: u64, states_max: usize) -> Self {
        let mut words = Vec::new();
        for (id, node) in state.nodes.iter_mut().enumerate() {
            if let Node::File(file) = node {
                let stored = file.stored_words();
                if !stored.is_empty() {
                    words.push((id, stored));
                }
            }
        }
        let nodes = state.nodes.clone();
        let unsettled = unsettled(&nodes);
        let count = unsettled.len();
        let fixed = if count <= SUBSETS_OF_MAX {
            1 << count
        } else {
            count + 4
        };
        let fixed = if words.is_empty() {
            fixed
        } else {
            fixed.max(2)
        };
        let sectors: u64 = unsettled
            .iter()
            .filter_map(|it| it.data)
            .map(sectors_of)
            .sum();
        let stored: usize = words.iter().map(|(_, stored)| stored.len()).sum();
        let parts = usize::try_from(sectors)
            .unwrap_or(usize::MAX)
            .saturating_add(stored);
        let least = if parts == 0 { 0 } else { STATES_DRAWN_MIN };
        let drawn = parts.saturating_mul(STATES_PER_PART).saturating_add(least);
        let drawn = if count <= SUBSETS_OF_MAX {
            drawn
        } else {
            drawn.saturating_add(count * STATES_PER_OPERATION)
        };
        let end = fixed.saturating_add(drawn).min(states_max);
        Self {
            nodes,
            unsettled,
            words,
            seed,
            next: 0,
            fixed,
            end,
        }
    }

    fn fates(&self, nth: usize) -> Vec<Fate> {
        let count = self.unsettled.len();
        let kept = |keep: bool| if keep { Fate::Kept } else { Fate::Dropped };
        if nth >= self.fixed {
            return self.drawn(nth);
        }
        let fate = |at: usize| {
            if count <= SUBSETS_OF_MAX {
                return kept(nth >> at & 1 == 1);
            }
            match nth {
                0 => Fate::Dropped,
                1 => Fate::Kept,
                2 => kept(at == 0),
                3 => kept(at + 1 == count),
                _ => kept(at != nth - 4),
            }
        };
        (0..count).map(fate).collect()
    }

    fn drawn(&self, nth: usize) -> Vec<Fate> {
        let mut dice = Dice::new(self.seed, nth as u64);
        let grain = if dice.below(4) == 0 {
            4096
        } else {
            SECTOR_BYTES
        };
        if dice.below(2) == 0 {
            return self.drawn_in_order(&mut dice, grain);
        }
        let draw = |it: &Unsettled| match dice.below(if it.data.is_some() { 4 } else { 2 }) {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            _ => Fate::Torn {
                seed: dice.next(),
                grain,
            },
        };
        self.unsettled.iter().map(draw).collect()
    }

    /// Names and lengths survive up to a point; data that makes a file longer goes with its
    /// length; other data goes its own way.
    fn drawn_in_order(&self, dice: &mut Dice, grain: u64) -> Vec<Fate> {
        let until = dice.below(self.unsettled.len() as u64 + 1);
        let until = self
            .unsettled
            .get(usize::try_from(until).unwrap_or(usize::MAX));
        let until = until.map_or(Stamp::MAX, |it| it.stamp);
        let draw = |it: &Unsettled| {
            if it.data.is_none() || it.lengthens {
                return if it.stamp < until {
                    Fate::Kept
                } else {
                    Fate::Dropped
                };
            }
            match dice.below(3) {
                0 => Fate::Kept,
                1 => Fate::Dropped,
                _ => Fate::Torn {
                    seed: dice.next(),
                    grain,
                },
            }
        };
        self.unsettled.iter().map(draw).collect()
    }

    fn build(&self, nth: usize) -> SimDisk {
        let mut fates = vec![Vec::new(); self.nodes.len()];
        for (it, fate) in self.unsettled.iter().zip(self.fates(nth)) {
            if let Some(of_node) = fates.get_mut(it.node) {
                // Operations of one node come in order, so their places fit.
                debug_assert_eq!(of_node.len(), it.at, "every operation has its fate");
                of_node.push(fate);
            }
        }
        let mut built = Build { nodes: Vec::new() };
        built.add(self, &fates, ROOT, nth);
        SimDisk::of(built.nodes)
    }

    fn file(&self, id: NodeId, file: &FileNode, fates: &[Fate], nth: usize) -> Image {
        let mut image = file.durable.clone();
        let mut bytes = image.len();
        for ((_, op), fate) in file.pending.iter().zip(fates) {
            match (op, fate) {
                (_, Fate::Dropped) => {}
                (FileOp::Length(length), _) => {
                    bytes = *length;
                    image.set_len(*length);
                }
                (FileOp::Write { .. }, Fate::Kept) => op.apply(&mut image),
                (FileOp::Write { position, bytes }, Fate::Torn { seed, grain }) => {
                    tear(&mut image, *position, bytes, Dice::new(*seed, 0), *grain);
                }
            }
        }
        image.set_len(bytes);
        self.mix_words(id, &mut image, nth);
        image
    }

    /// Each changed word of a mapped file is old or new; in the first two states, all are.
    fn mix_words(&self, id: NodeId, image: &mut Image, nth: usize) {
        let Some((_, stored)) = self.words.iter().find(|(node, _)| *node == id) else {
            return;
        };
        let mut dice = Dice::new(self.seed ^ id as u64, nth as u64);
        for (position, value) in stored {
            let new = match nth {
                0 => false,
                1 => true,
                _ => dice.below(2) == 0,
            };
            if new && position + 8 <= image.len() {
                image.write(value, *position);
            }
        }
    }
}

impl Iterator for CrashStates {
    type Item = SimDisk;

    fn next(&mut self) -> Option<SimDisk> {
        let nth = self.next;
        (nth < self.end).then(|| {
            self.next += 1;
            self.build(nth)
        })
    }
}

/// The nodes of a state that is made anew: only what has a name, all of it settled.
struct Build {
    nodes: Vec<Node>,
}

impl Build {
    fn add(&mut self, from: &CrashStates, fates: &[Vec<Fate>], id: NodeId, nth: usize) -> NodeId {
        let own = fates.get(id).map(Vec::as_slice).unwrap_or_default();
        let new = self.nodes.len();
        match from.nodes.get(id) {
            Some(Node::File(file)) => {
                let image = from.file(id, file, own, nth);
                self.nodes.push(Node::File(FileNode::settled(image)));
            }
            Some(Node::Dir(dir)) => {
                let mut names = dir.durable.clone();
                for ((_, op), fate) in dir.pending.iter().zip(own) {
                    if !matches!(fate, Fate::Dropped) {
                        op.apply(&mut names);
                    }
                }
                self.nodes.push(settled_dir(Names::new()));
                let inner = names.into_iter();
                let inner = inner.map(|(name, inner)| (name, self.add(from, fates, inner, nth)));
                let names = inner.collect();
                if let Some(node) = self.nodes.get_mut(new) {
                    *node = settled_dir(names);
                }
            }
            None => {}
        }
        new
    }
}

fn unsettled(nodes: &[Node]) -> Vec<Unsettled> {
    let mut all = Vec::new();
    for (node, content) in nodes.iter().enumerate() {
        match content {
            Node::File(file) => all.extend(unsettled_of_file(node, file)),
            Node::Dir(dir) => {
                all.extend(
                    dir.pending
                        .iter()
                        .enumerate()
                        .map(|(at, (stamp, _))| Unsettled {
                            node,
                            at,
                            stamp: *stamp,
                            data: None,
                            lengthens: false,
                        }),
                );
            }
        }
    }
    all.sort_by_key(|it| (it.stamp, it.node, it.at));
    all
}

fn unsettled_of_file(node: NodeId, file: &FileNode) -> impl Iterator<Item = Unsettled> {
    file.pending
        .iter()
        .enumerate()
        .map(move |(at, (stamp, op))| {
            let data = match op {
                FileOp::Write { bytes, .. } => Some(bytes.len() as u64),
                FileOp::Length(_) => None,
            };
            let follower = file.pending.get(at + 1);
            let lengthens = data.is_some()
                && follower
                    .is_some_and(|(later, op)| later == stamp && matches!(op, FileOp::Length(_)));
            Unsettled {
                node,
                at,
                stamp: *stamp,
                data,
                lengthens,
            }
        })
}

/// Sectors that a write of so many bytes touches, about.
fn sectors_of(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR_BYTES)
}

/// Writes `bytes` in part: each sector is new, old, zeros or noise.
fn tear(image: &mut Image, position: u64, bytes: &[u8], mut dice: Dice, grain: u64) {
    let mut rest = bytes;
    let mut at = position;
    while !rest.is_empty() {
        let to_boundary = usize::try_from(grain - at % grain).unwrap_or(usize::MAX);
        let (sector, more) = rest.split_at(to_boundary.min(rest.len()));
        match dice.below(8) {
            0..4 => image.write(sector, at),
            4..6 => {}
            6 => image.write(&vec![0; sector.len()], at),
            _ => {
                let noise: Vec<u8> = sector.iter().map(|_| dice.byte()).collect();
                image.write(&noise, at);
            }
        }
        at += sector.len() as u64;
        rest = more;
    }
}

/// Draws numbers from a seed (`SplitMix64`).
struct Dice {
    state: u64,
}

impl Dice {
    fn new(seed: u64, nth: u64) -> Self {
        let mut dice = Self {
            state: seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_le_bytes();
        byte
    }
}
