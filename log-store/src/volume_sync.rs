//! Settling a whole file system at once, where that tells of every write that was lost.

use std::io;
use std::os::fd::OwnedFd;

use crate::fs::VolumeSync;

/// Settles the file system that `folder` is on; see [`crate::fs::Dir::sync_volume`].
#[cfg(target_os = "linux")]
pub(crate) fn sync(folder: &OwnedFd) -> io::Result<VolumeSync> {
    use rustix::io::Errno;

    let release = rustix::system::uname();
    if !linux::reports_losses(&release.release().to_string_lossy())
        || !linux::KNOWN.contains(&rustix::fs::fstatfs(folder)?.f_type)
    {
        return Ok(VolumeSync::Unavailable);
    }
    // Not repeated when interrupted: an error that it had to report would be gone.
    match rustix::fs::syncfs(folder) {
        // A filter of system calls keeps it from being made.
        Err(Errno::NOSYS | Errno::PERM) => Ok(VolumeSync::Unavailable),
        synced => Ok(synced.map(|()| VolumeSync::Settled)?),
    }
}

/// Elsewhere nothing is known to do this.
#[cfg(not(target_os = "linux"))]
pub(crate) fn sync(_folder: &OwnedFd) -> io::Result<VolumeSync> {
    Ok(VolumeSync::Unavailable)
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::fs::FsWord;

    /// The file systems for which this is known to hold: pages that a write-back lost are counted
    /// on the file system itself, also when nobody had the file open any more, and `syncfs`
    /// reports them through every descriptor that was opened before, once; and it waits for the
    /// journal and empties the device's cache. Not so: overlay (it counts on the file system
    /// below, which its own descriptors do not look at), FUSE (its server is not told to sync),
    /// network file systems.
    pub(super) const KNOWN: [FsWord; 2] = [EXT, XFS];
    const EXT: FsWord = 0xef53;
    const XFS: FsWord = 0x5846_5342;
    /// The first version of Linux whose `syncfs` reports what was lost earlier.
    const SINCE: (u32, u32) = (5, 8);

    /// Whether a release such as `6.1.0-18-amd64` is new enough.
    pub(super) fn reports_losses(release: &str) -> bool {
        let mut numbers = release
            .split(|letter: char| !letter.is_ascii_digit())
            .map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= SINCE,
            _ => false,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use crate::fs::OsDir;

    #[test]
    fn releases_whose_sync_may_hide_a_loss_are_passed_over() {
        for (release, reports) in [
            ("5.8.0", true),
            ("6.1.0-18-amd64", true),
            ("6.18-rc1", true),
            ("5.7.19", false),
            ("4.18.0-553.el8", false),
            ("", false),
            ("5", false),
            ("next", false),
        ] {
            assert_eq!(super::linux::reports_losses(release), reports, "{release}");
        }
    }

    #[test]
    fn the_disk_of_the_system_settles_or_says_that_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let dir = OsDir::open(folder.path()).unwrap();
        dir.create("file").unwrap().write_at(b"x", 0).unwrap();
        dir.sync_volume().unwrap();
    }
}
