//! Open folders and files of the disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::disk::{Extent, SimDisk, stopped};
use super::fault::Call;
use super::node::{DirNode, DirOp, FileNode, Node, NodeId};
use crate::fs::{Dir, File, Space, VolumeSync, check_name, read_until_full, write_until_done};
use crate::mapped::Mapped;

/// An open folder.
pub(super) struct SimDir {
    disk: SimDisk,
    node: NodeId,
}

impl SimDir {
    pub(super) fn new(disk: SimDisk, node: NodeId) -> Self {
        Self { disk, node }
    }

    fn handle(&self, node: NodeId) -> Arc<dyn Dir> {
        Arc::new(Self::new(self.disk.clone(), node))
    }

    fn file_handle(&self, node: NodeId) -> Arc<dyn File> {
        Arc::new(SimFile {
            disk: self.disk.clone(),
            node,
        })
    }

    fn unlink(&self, name: &str, node: NodeId) -> io::Result<()> {
        let mut state = self.disk.state();
        let stamp = state.mutate()?;
        state.faults.meet(Call::Remove)?;
        state.dir(self.node)?.change(
            DirOp::Unlink {
                name: name.to_owned(),
                node,
            },
            stamp,
        );
        Ok(())
    }
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDir({})", self.node)
    }
}

impl Dir for SimDir {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self
            .disk
            .state()
            .dir(self.node)?
            .live
            .keys()
            .cloned()
            .collect())
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        check_name(name)?;
        let mut state = self.disk.state();
        state.faults.meet(Call::Open)?;
        let node = state.find(self.node, name)?;
        state.dir(node)?;
        Ok(self.handle(node))
    }

    fn create_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        check_name(name)?;
        let mut state = self.disk.state();
        let node = match state.find(self.node, name) {
            Ok(node) => node,
            Err(_) => state.link(self.node, name, Node::Dir(DirNode::default()))?,
        };
        state.dir(node)?;
        Ok(self.handle(node))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let mut state = self.disk.state();
        state.faults.meet(Call::Open)?;
        let node = state.find(self.node, name)?;
        state.file(node)?;
        Ok(self.file_handle(node))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let mut state = self.disk.state();
        if state.find(self.node, name).is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let node = state.link(self.node, name, Node::File(FileNode::default()))?;
        Ok(self.file_handle(node))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.disk.state();
        let node = state.find(self.node, from)?;
        state.file(node)?;
        if let Ok(replaced) = state.find(self.node, to) {
            state.file(replaced)?;
        }
        let stamp = state.mutate()?;
        state.faults.meet(Call::Rename)?;
        let op = DirOp::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            node,
        };
        state.dir(self.node)?.change(op, stamp);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let node = {
            let mut state = self.disk.state();
            let node = state.find(self.node, name)?;
            state.file(node)?;
            node
        };
        self.unlink(name, node)
    }

    fn remove_dir(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let node = {
            let mut state = self.disk.state();
            let node = state.find(self.node, name)?;
            if !state.dir(node)?.live.is_empty() {
                return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
            }
            node
        };
        self.unlink(name, node)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.mutate()?;
        state.faults.meet(Call::SyncDir)?;
        state.dir(self.node)?.sync();
        Ok(())
    }

    fn sync_volume(&self) -> io::Result<VolumeSync> {
        let mut state = self.disk.state();
        if !state.syncs_whole {
            return Ok(VolumeSync::Unavailable);
        }
        state.mutate()?;
        let met = state.faults.meet(Call::SyncVolume);
        for node in &mut state.nodes {
            match (node, &met) {
                (Node::File(file), Ok(_)) => file.sync(),
                (Node::File(file), Err(_)) => file.lose_pending(),
                (Node::Dir(dir), Ok(_)) => dir.sync(),
                (Node::Dir(_), Err(_)) => {}
            }
        }
        met.map(|_short| VolumeSync::Settled)
    }

    fn space(&self) -> io::Result<Space> {
        Ok(self.disk.state().space())
    }
}

/// An open file.
struct SimFile {
    disk: SimDisk,
    node: NodeId,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.node)
    }
}

impl SimFile {
    fn pread(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let short = state.faults.meet(Call::Read)?;
        let some = if short {
            into.len().div_ceil(2)
        } else {
            into.len()
        };
        Ok(state
            .file(self.node)?
            .read(into.get_mut(..some).unwrap_or_default(), position))
    }

    fn pwritev(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let mut state = self.disk.state();
        let extent = state.mutate_by()?;
        if state.faults.meet(Call::Write)? {
            bytes.truncate(bytes.len().div_ceil(2));
        }
        state.make_room(self.node, position + bytes.len() as u64)?;
        let file = state.file(self.node)?;
        match extent {
            Extent::Whole(stamp) => {
                file.write(&bytes, position, stamp);
                Ok(bytes.len())
            }
            Extent::Part(stamp, some) => {
                bytes.truncate(some);
                file.write(&bytes, position, stamp);
                Err(stopped())
            }
        }
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().file(self.node)?.len())
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        read_until_full(into, position, |rest, at| self.pread(rest, at))
    }

    fn write_at(&self, from: &[u8], position: u64) -> io::Result<()> {
        self.write_vectored_at(&[from], position)
    }

    fn write_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        write_until_done(parts, position, |some, at| self.pwritev(some, at))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.file(self.node)?.is_mapped() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the length of a file that is or was mapped may not be set",
            ));
        }
        let stamp = state.mutate()?;
        state.faults.meet(Call::SetLen)?;
        state.make_room(self.node, bytes)?;
        state.file(self.node)?.set_len(bytes, stamp);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let stamp = state.mutate()?;
        state.faults.meet(Call::Allocate)?;
        state.make_room(self.node, bytes)?;
        let file = state.file(self.node)?;
        if bytes > file.len() {
            file.set_len(bytes, stamp);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.mutate()?;
        let met = state.faults.meet(Call::Sync);
        let file = state.file(self.node)?;
        let met = met.and_then(|_short| file.report_loss());
        match met {
            Ok(()) => file.sync(),
            Err(_) => file.fail_sync(),
        }
        met
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.disk.state().file(self.node)?.drop_cache();
        Ok(())
    }

    fn map(&self, bytes: u64) -> io::Result<Mapped> {
        let mut state = self.disk.state();
        let file = state.file(self.node)?;
        if file.len() < bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the map is longer than its file",
            ));
        }
        Mapped::of_pages(file.map(bytes), bytes)
    }
}
