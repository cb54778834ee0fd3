//! Generates the servers of the contract once more: with our codec, and with the messages that
//! carry records replaced by types of our own, so that `prost` never decodes a record into a
//! struct. All other messages are those of `varvelog-proto`.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Messages that carry records, or hold one that does.
const REPLACED: &[&str] = &[
    "ProduceRequest",
    "ProduceStreamRequest",
    "AckRequest",
    "ConsumeSessionRequest",
    "FetchResponse",
    "TailResponse",
    "ConsumeResponse",
    "ConsumeSessionResponse",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../proto/proto");
    let mut files = Vec::new();
    find_protos(root, &mut files)?;
    files.sort();
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", root.display());
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let set = protox::compile(&files, [root])?;
    let mut builder = tonic_prost_build::configure()
        .build_client(false)
        .build_server(true)
        .generate_default_stubs(true)
        .codec_path("crate::service::wire::Codec");
    for message in REPLACED {
        let ours = format!("crate::service::wire::{message}");
        builder = builder.extern_path(format!(".varvelog.v1.{message}"), ours);
    }
    builder
        .extern_path(".varvelog.v1", "::varvelog_proto::v1")
        .extern_path(".externalscaler", "::varvelog_proto::externalscaler")
        .compile_fds(set)?;
    compile_health()
}

/// Health checks speak our codec too, so that bytes that do not decode are answered as everywhere.
fn compile_health() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(["proto/grpc/health/v1/health.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .codec_path("crate::service::wire::Codec")
        .extern_path(".grpc.health.v1", "::tonic_health::pb")
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
