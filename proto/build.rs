//! Compiles the `.proto` files without protoc: messages, clients and the descriptor set.
#![expect(
    clippy::disallowed_methods,
    reason = "a build script writes to OUT_DIR"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("proto");
    let mut files = Vec::new();
    find_protos(root, &mut files)?;
    files.sort();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(&files, [root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("varvelog_descriptor.bin"), set.encode_to_vec())?;
    write_sources(root, &files, &out)?;
    tonic_prost_build::configure()
        .build_server(true)
        .bytes(".")
        .compile_fds(set)?;
    Ok(())
}

fn find_protos(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find_protos(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            found.push(path);
        }
    }
    Ok(())
}

/// A table of (path below the include root, text), for programs that write the contract out.
fn write_sources(
    root: &Path,
    files: &[PathBuf],
    out: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut table = String::from("&[\n");
    for file in files {
        let relative = file.strip_prefix(root).unwrap_or(file).display();
        let absolute = fs::canonicalize(file)?;
        let (relative, absolute) = (relative.to_string(), absolute.display().to_string());
        writeln!(table, "    ({relative:?}, include_str!({absolute:?})),")?;
    }
    table.push_str("]\n");
    fs::write(out.join("varvelog_sources.rs"), table)?;
    Ok(())
}
