//! The process as the system sees it. Where the system does not say, there is no series.

use super::family::{Family, Kind};

/// Its families.
pub(super) fn families() -> Vec<Family> {
    let figures = [
        (
            "varvelog_open_files",
            "File descriptors that are open",
            open_files(),
        ),
        (
            "varvelog_mapped_files",
            "Files that are mapped into memory",
            mapped_files(),
        ),
        (
            "varvelog_resident_memory_bytes",
            "Memory of the process that is resident",
            resident_bytes(),
        ),
    ];
    let family = |(name, help, value): (_, _, Option<u64>)| {
        let mut family = Family::new(Kind::Gauge, name, help);
        if let Some(value) = value {
            family.add(Vec::new(), value);
        }
        family
    };
    figures.into_iter().map(family).collect()
}

fn open_files() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // One of them is the folder that is being read.
    u64::try_from(entries.count().saturating_sub(1)).ok()
}

/// Mappings of files that can be written: those of libraries and of the program cannot, or belong
/// to the process alone.
fn mapped_files() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let shared = maps.lines().filter(|line| {
        let mut fields = line.split_ascii_whitespace();
        let rights = fields.nth(1).unwrap_or_default();
        let path = fields.nth(3).unwrap_or_default();
        rights.ends_with('s') && path.starts_with('/')
    });
    u64::try_from(shared.count()).ok()
}

fn resident_bytes() -> Option<u64> {
    let figures = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = figures
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib.saturating_mul(1024))
}
