//! Rules about how files and crates hang together.

use std::collections::BTreeSet;
use std::fs;

use super::sources::{self, CRATES};

fn manifest(name: &str) -> toml::Table {
    let path = sources::root().join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).expect("every crate has a manifest");
    text.parse().expect("a manifest is TOML")
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for name in CRATES {
        let manifest = manifest(name);
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        assert_eq!(lints.and_then(toml::Value::as_bool), Some(true), "{name}");
    }
}

/// Crates of ours that a crate may name outside its tests.
fn may_name(name: &str) -> &'static [&'static str] {
    match name {
        "proto" | "log-store" => &[],
        // The client builds record batches, and the store alone knows their layout.
        "broker" | "client" => &["varvelog-proto", "varvelog-store"],
        _ => &[
            "varvelog-proto",
            "varvelog-store",
            "varvelog-broker",
            "varvelog-client",
        ],
    }
}

#[test]
fn crates_name_only_those_below_them() {
    for name in CRATES {
        let manifest = manifest(name);
        let Some(dependencies) = manifest.get("dependencies").and_then(toml::Value::as_table)
        else {
            continue;
        };
        for dependency in dependencies
            .keys()
            .filter(|key| key.starts_with("varvelog"))
        {
            assert!(
                may_name(name).contains(&dependency.as_str()),
                "{name} names {dependency}"
            );
        }
    }
}

#[test]
fn the_client_names_of_the_store_the_record_batch_alone() {
    for source in sources::all() {
        if !source.path.starts_with("client/src/") || source.is_test() {
            continue;
        }
        for (number, line) in source.code_lines() {
            let mut rest = line.split("//").next().unwrap_or_default();
            while let Some((_, after)) = rest.split_once("varvelog_store") {
                let allowed = ["::batch", "::Offset", "::Epoch"];
                assert!(
                    allowed.iter().any(|allowed| after.starts_with(allowed)),
                    "{}:{number}: {line}",
                    source.path
                );
                rest = after;
            }
        }
    }
}

#[test]
fn every_source_file_is_declared_as_a_module() {
    let sources = sources::all();
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    for source in &sources {
        let path = source.path.as_str();
        let Some((folder, file)) = path.rsplit_once('/') else {
            continue;
        };
        let stem = file.trim_end_matches(".rs");
        let is_root = ["main", "lib", "build"].contains(&stem)
            || folder.ends_with("/bin")
            || folder.ends_with("examples")
            || folder == "benches/benches"
            || folder == "cli/tests"
            || path.starts_with("examples/");
        if is_root {
            continue;
        }
        let (parents, name) = parents_of(folder, stem);
        let declared = parents
            .iter()
            .filter(|parent| paths.contains(parent.as_str()))
            .any(|at| {
                sources
                    .iter()
                    .any(|source| &source.path == at && declares(&source.text, &name))
            });
        assert!(declared, "{path} is declared by none of {parents:?}");
    }
}

/// Files that may declare the module, and its name.
fn parents_of(folder: &str, stem: &str) -> (Vec<String>, String) {
    let (folder, name) = if stem == "mod" {
        let (above, name) = folder.rsplit_once('/').expect("a module lies in a crate");
        (above, name.to_owned())
    } else {
        (folder, stem.to_owned())
    };
    let mut parents: Vec<String> = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .map(|file| format!("{folder}/{file}"))
        .collect();
    parents.push(format!("{folder}.rs"));
    // A test file beside the file that it tests.
    if let Some(tested) = name.strip_suffix("_tests") {
        parents.push(format!("{folder}/{tested}.rs"));
    }
    (parents, name)
}

fn declares(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        let module = line.rsplit_once("mod ").map(|(_, module)| module);
        module == Some(format!("{name};").as_str()) || line.contains(&format!("\"{name}.rs\""))
    })
}
