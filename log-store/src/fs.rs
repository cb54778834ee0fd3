//! The disk, through the front door: every byte that reaches it goes through [`Dir`] and
//! [`File`].

use std::fmt::Debug;
use std::fs::{DirBuilder, File as StdFile};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::layout::temporary;
use crate::mapped::Mapped;
use crate::volume_sync;

/// Slices that the system takes in one call.
const SLICES_PER_CALL_MAX: usize = 1024;

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
    /// Settles everything that was written, made, renamed or removed before the call, by anyone,
    /// in any file or folder of the file system that this folder is on. Also fails if anything
    /// written since this folder was opened was lost earlier, on its way to the device. An error
    /// is final for the volume: do not call it again. Where that cannot be promised nothing is
    /// done, and the answer is [`VolumeSync::Unavailable`].
    fn sync_volume(&self) -> io::Result<VolumeSync>;
    /// Free and total bytes of the volume.
    fn space(&self) -> io::Result<Space>;
}

/// What became of [`Dir::sync_volume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeSync {
    /// All is on the device.
    Settled,
    /// Not possible here: sync each file and folder.
    Unavailable,
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

/// Whether a call was refused because the volume is full: it may go well later.
pub fn lacks_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether a call was refused because the process, or the system, has too many files open: nothing
/// was done, and it may go well later.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// Reads exactly `into.len()` bytes, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn File, into: &mut [u8], position: u64) -> io::Result<()> {
    if file.read_at(into, position)? == into.len() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// Reads a whole file of at most `bytes_max` bytes; a longer one is `FileTooLarge`.
pub fn read_whole(file: &dyn File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let bytes = file.len()?;
    if bytes > bytes_max {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    read_exact_at(file, &mut content, 0)?;
    Ok(content)
}

/// Makes `content` the whole of the file `name`, durably: after a crash at any moment the file is
/// what it was before, or this.
pub fn replace_file(dir: &dyn Dir, name: &str, content: &[u8]) -> io::Result<()> {
    let temp = temporary(name);
    match dir.remove(&temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = dir.create(&temp)?;
    file.write_at(content, 0)?;
    file.sync_data()?;
    dir.rename(&temp, name)?;
    dir.sync()
}

/// Reads until `into` is full or the file ends, in as many calls of `pread` as it takes.
pub(crate) fn read_until_full(
    into: &mut [u8],
    position: u64,
    mut pread: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(rest, position.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `parts`, in as many calls of `pwritev` as it takes.
pub(crate) fn write_until_done(
    parts: &[&[u8]],
    mut position: u64,
    mut pwritev: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| IoSlice::new(part))
        .collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let some = rest
            .get(..rest.len().min(SLICES_PER_CALL_MAX))
            .unwrap_or_default();
        match pwritev(some, position) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(bytes) => {
                position = position.saturating_add(bytes as u64);
                IoSlice::advance_slices(&mut rest, bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Refuses a name that is not one plain component of a path.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not the name of a file in a folder"),
        ));
    }
    Ok(())
}

/// A folder of the operating system. What it makes is for this user only, a file that is a link
/// is refused, and descriptors are closed in programs that this one starts.
#[derive(Debug)]
pub struct OsDir {
    folder: OwnedFd,
}

impl OsDir {
    /// Opens the folder at `path`; makes it (mode 0700, durably) when it is not there.
    pub fn open(path: &Path) -> io::Result<Arc<dyn Dir>> {
        let missing: Vec<&Path> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
            .collect();
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        for folder in missing {
            let parent = folder
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            open_folder(CWD, parent.unwrap_or(Path::new(".")))?.sync()?;
        }
        Ok(Arc::new(open_folder(CWD, path)?))
    }

    fn open_file(&self, name: &str, how: OFlags) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile {
            file: self.open_system_file(name, how)?,
        }))
    }

    fn open_system_file(&self, name: &str, how: OFlags) -> io::Result<StdFile> {
        check_name(name)?;
        let flags = how | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(StdFile::from(file))
    }
}

/// Opens the file `name` in the folder at `path`, making what is missing, for its lock alone.
pub(crate) fn open_lock_file(path: &Path, name: &str) -> io::Result<StdFile> {
    OsDir::open(path)?;
    open_folder(CWD, path)?.open_system_file(name, OFlags::CREATE)
}

fn open_folder(from: BorrowedFd<'_>, path: impl rustix::path::Arg) -> io::Result<OsDir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(OsDir {
        folder: rustix::fs::openat(from, path, flags, Mode::empty())?,
    })
}

impl Dir for OsDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        check_name(name)?;
        Ok(Arc::new(open_folder(self.folder.as_fd(), name)?))
    }

    fn create_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        check_name(name)?;
        match rustix::fs::mkdirat(&self.folder, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(name),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(name, OFlags::empty())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(name, OFlags::CREATE | OFlags::EXCL)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn remove_dir(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        Ok(rustix::fs::unlinkat(
            &self.folder,
            name,
            AtFlags::REMOVEDIR,
        )?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.folder)?)
    }

    fn sync_volume(&self) -> io::Result<VolumeSync> {
        volume_sync::sync(&self.folder)
    }

    fn space(&self) -> io::Result<Space> {
        let volume = rustix::fs::fstatvfs(&self.folder)?;
        Ok(Space {
            free: volume.f_bavail.saturating_mul(volume.f_frsize),
            total: volume.f_blocks.saturating_mul(volume.f_frsize),
        })
    }
}

/// A file of the operating system.
#[derive(Debug)]
struct OsFile {
    file: StdFile,
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        read_until_full(into, position, |rest, at| self.file.read_at(rest, at))
    }

    fn write_at(&self, from: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(from, position)
    }

    fn write_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        write_until_done(parts, position, |some, at| {
            Ok(rustix::io::pwritev(&self.file, some, at)?)
        })
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => return self.fill_to(bytes),
                done => return Ok(done?),
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    fn map(&self, bytes: u64) -> io::Result<Mapped> {
        Mapped::of_file(&self.file, bytes)
    }
}

impl OsFile {
    /// Allocates by writing zeros, where the file system knows no other way.
    fn fill_to(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; 64 * 1024];
        let mut at = self.len()?;
        while at < bytes {
            let some = usize::try_from(bytes - at)
                .unwrap_or(zeros.len())
                .min(zeros.len());
            self.file
                .write_all_at(zeros.get(..some).unwrap_or_default(), at)?;
            at += some as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "fs_tests.rs"]
mod tests;
