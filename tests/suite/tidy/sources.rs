//! The source files of the workspace, read once.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file.
#[derive(Debug)]
pub(super) struct Source {
    /// From the root of the repository, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// Folders that hold Rust code of ours.
pub(super) const CRATES: [&str; 8] = [
    "proto",
    "log-store",
    "broker",
    "client",
    "cli",
    "benches",
    "tests",
    "examples",
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("the package lies in the repository")
        .to_path_buf()
}

/// Every Rust file, by path.
pub(super) fn all() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for folder in CRATES {
        walk(&root, &root.join(folder), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 50, "the sources are there");
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                walk(root, &path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let relative = path.strip_prefix(root).expect("it lies below the root");
            found.push(Source {
                path: relative.display().to_string(),
                text,
            });
        }
    }
}

impl Source {
    /// Whether it holds tests only.
    pub(super) fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.ends_with("tests.rs")
            || self.path.contains("_tests/")
            || self.path.starts_with("benches/")
    }

    /// Lines with their numbers, up to the first inline test module.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut ended = self.is_test();
        let mut lines = self.text.lines().enumerate().peekable();
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let (index, line) = lines.next()?;
            let opens_tests = line.trim() == "#[cfg(test)]"
                && lines
                    .peek()
                    .is_some_and(|(_, next)| next.trim_end().ends_with('{'));
            if opens_tests {
                ended = true;
                return None;
            }
            Some((index + 1, line))
        })
    }
}
