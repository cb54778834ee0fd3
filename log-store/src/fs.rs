//! The disk, through the front door: every byte that reaches it goes through [`Dir`] and
//! [`File`].

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::mapped::Mapped;

/// An open folder. Names are single components, never paths. All calls block.
pub trait Dir: Debug + Send + Sync {
    /// Names in this folder, sorted, files and folders alike.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a folder in this one.
    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>>;
    /// Makes a folder in this one (mode 0700) and opens it; one that is there is opened. Durable
    /// after [`Dir::sync`] of this one.
    fn create_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Makes an empty file (mode 0600); refuses one that is there. Durable after [`Dir::sync`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file within this folder, in place of one that is there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, name: &str) -> io::Result<()>;
    /// Settles creates, renames and removes in this folder.
    fn sync(&self) -> io::Result<()>;
    /// Free and total bytes of the volume.
    fn space(&self) -> io::Result<Space>;
}

/// Room on a volume, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free for an ordinary user.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// An open file, read and written at positions; it has no cursor. All calls block.
pub trait File: Debug + Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads up to `into.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `from`.
    fn write_at(&self, from: &[u8], position: u64) -> io::Result<()>;
    /// Writes all of `parts` one behind the other, in as few calls as the system allows.
    fn write_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()>;
    /// Sets the length. Never on a file that is or was mapped.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Really allocates `bytes` from the start and makes the file at least so long: a full volume
    /// is an error here and not a fault later.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Settles data and length. An error is final for the volume: do not call it again.
    fn sync_data(&self) -> io::Result<()>;
    /// Drops what the system caches of it, so that the next read comes from the device.
    fn drop_cache(&self) -> io::Result<()>;
    /// Maps the first `bytes` (a multiple of 8, allocated before) as words.
    fn map(&self, bytes: u64) -> io::Result<Mapped>;
}

/// Reads exactly `into.len()` bytes, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn File, into: &mut [u8], position: u64) -> io::Result<()> {
    if file.read_at(into, position)? == into.len() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}
