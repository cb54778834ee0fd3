//! The disk and its controls.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::crash::CrashStates;
use super::fault::{Call, Failure, Faults, no_space};
use super::handle::SimDir;
use super::node::{DirNode, DirOp, FileNode, Names, Node, NodeId, Stamp};
use crate::fs::{Dir, Space};

/// The root folder's node.
pub(super) const ROOT: NodeId = 0;

/// A disk in memory; a clone is the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// All there is on the disk, and what will go wrong.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) faults: Faults,
    operations: u64,
    /// The stamp of the last operation before this process began.
    stamp_base: Stamp,
    stop: Option<Stop>,
    bytes_total: Option<u64>,
    /// Whether the volume can be synced as a whole.
    pub(super) syncs_whole: bool,
}

/// When the process dies.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// The first operation that does not happen.
    at: u64,
    /// How many bytes of it happen if it is a write.
    bytes: usize,
}

/// How much of a mutating call happens.
pub(super) enum Extent {
    Whole(Stamp),
    /// So many bytes, and then the process is dead.
    Part(Stamp, usize),
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::of(vec![Node::Dir(DirNode::default())])
    }

    pub(super) fn of(nodes: Vec<Node>) -> Self {
        let state = State {
            nodes,
            faults: Faults::default(),
            operations: 0,
            stamp_base: 0,
            stop: None,
            bytes_total: None,
            syncs_whole: true,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The root folder.
    pub fn root(&self) -> Arc<dyn Dir> {
        Arc::new(SimDir::new(self.clone(), ROOT))
    }

    /// How many mutating calls there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The `nth` mutating call (from 1, counted from the beginning) and all later ones fail, as if
    /// the process had died before it.
    pub fn stop_at(&self, nth: u64) {
        self.stop_inside(nth, 0);
    }

    /// As [`SimDisk::stop_at`], but if that call is a write its first `bytes` are written.
    pub fn stop_inside(&self, nth: u64, bytes: usize) {
        self.state().stop = Some(Stop { at: nth, bytes });
    }

    /// The `nth` call of a kind from now on (1 is the next) fails.
    pub fn fail(&self, call: Call, nth: u64, failure: Failure) {
        self.state().faults.add(call, nth, failure);
    }

    /// Files take no more than `bytes` together from now on.
    pub fn limit_space(&self, bytes: u64) {
        self.state().bytes_total = Some(bytes);
    }

    /// The volume cannot be synced as a whole from now on, as on some file systems.
    pub fn forbid_sync_volume(&self) {
        self.state().syncs_whole = false;
    }

    /// What a new process finds after this one was killed: all that was written.
    #[must_use]
    pub fn process_kill(&self) -> Self {
        let mut state = self.state();
        let stamp = state.stamp_base + state.operations + 1;
        let nodes = state.nodes.iter_mut().map(|node| match node {
            Node::File(file) => Node::File(file.after_kill(stamp)),
            Node::Dir(dir) => Node::Dir(dir.clone()),
        });
        let nodes = nodes.collect();
        let (bytes_total, syncs_whole) = (state.bytes_total, state.syncs_whole);
        drop(state);
        let killed = Self::of(nodes);
        killed.state().bytes_total = bytes_total;
        killed.state().syncs_whole = syncs_whole;
        killed.state().stamp_base = stamp;
        killed
    }

    /// Disks as a power loss at this moment might leave them, at most `states_max`: all subsets of
    /// what is unsettled when there are few, the corners (nothing, all, the first only, the last
    /// only, all but one) else; then torn writes and the like, drawn by `seed`.
    pub fn crash_states(&self, seed: u64, states_max: usize) -> CrashStates {
        CrashStates::new(&mut self.state(), seed, states_max)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(
            f,
            "SimDisk({} nodes, {} operations)",
            state.nodes.len(),
            state.operations
        )
    }
}

impl State {
    /// Counts a mutating call; fails when the process is dead by then.
    pub(super) fn mutate(&mut self) -> io::Result<Stamp> {
        match self.mutate_by()? {
            Extent::Whole(stamp) => Ok(stamp),
            Extent::Part(..) => Err(stopped()),
        }
    }

    /// As [`State::mutate`], for a call that may happen in part.
    pub(super) fn mutate_by(&mut self) -> io::Result<Extent> {
        self.operations += 1;
        let stamp = self.stamp_base + self.operations;
        match self.stop {
            Some(stop) if self.operations == stop.at && stop.bytes > 0 => {
                Ok(Extent::Part(stamp, stop.bytes))
            }
            Some(stop) if self.operations >= stop.at => Err(stopped()),
            _ => Ok(Extent::Whole(stamp)),
        }
    }

    /// The file with this id. A handle is only made for one that is there.
    pub(super) fn file(&mut self, id: NodeId) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn dir(&mut self, id: NodeId) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(id) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn find(&mut self, dir: NodeId, name: &str) -> io::Result<NodeId> {
        let found = self.dir(dir)?.live.get(name).copied();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Makes a node under a new name.
    pub(super) fn link(&mut self, dir: NodeId, name: &str, node: Node) -> io::Result<NodeId> {
        let stamp = self.mutate()?;
        self.faults.meet(Call::Create)?;
        let id = self.nodes.len();
        self.dir(dir)?.change(
            DirOp::Link {
                name: name.to_owned(),
                node: id,
            },
            stamp,
        );
        self.nodes.push(node);
        Ok(id)
    }

    pub(super) fn space(&self) -> Space {
        let total = self.bytes_total.unwrap_or(u64::MAX);
        Space {
            free: total.saturating_sub(self.bytes_used(ROOT)),
            total,
        }
    }

    fn bytes_used(&self, id: NodeId) -> u64 {
        match self.nodes.get(id) {
            Some(Node::File(file)) => file.len(),
            Some(Node::Dir(dir)) => dir.live.values().map(|id| self.bytes_used(*id)).sum(),
            None => 0,
        }
    }

    /// Fails when the file may not become so long.
    pub(super) fn make_room(&mut self, file: NodeId, bytes: u64) -> io::Result<()> {
        let more = bytes.saturating_sub(self.file(file)?.len());
        if more > 0 && self.bytes_total.is_some() && more > self.space().free {
            return Err(no_space());
        }
        Ok(())
    }
}

/// The names of a folder and what is under each, for a state that is made anew.
pub(super) fn settled_dir(names: Names) -> Node {
    Node::Dir(DirNode::settled(names))
}

pub(super) fn stopped() -> io::Error {
    io::Error::other("the simulated process has died")
}
