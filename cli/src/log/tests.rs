use std::path::Path;
use std::sync::Arc;

use clap::Parser as _;
use serde_json::Value;
use tempfile::TempDir;
use varvelog_broker::core::state::State;
use varvelog_store::batch::{BatchBuilder, Codec};
use varvelog_store::checkpoint::{Checkpoint, CheckpointStore};
use varvelog_store::fs::{Dir, OsDir};
use varvelog_store::identity::{Identity, lock_folder, open_or_create, write_clean_mark};
use varvelog_store::layout::{self, PartitionFile, partition_folder};
use varvelog_store::partition::{
    CommittedBatch, PartitionConfig, PartitionManifest, Volume, create,
};
use varvelog_store::{Epoch, FolderId, Offset, PartitionId, Sequence, TopicId, WallMs};

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Capture, Output};

const TOPIC: &str = "07070707-0707-0707-0707-070707070707";
const APPENDED: WallMs = WallMs(979_397_760_000);

/// A folder with one partition of three batches of two records each, as a clean stop leaves it.
fn folder() -> TempDir {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(temp.path()).unwrap();
    let id = FolderId([3; 16]);
    let identity = Identity {
        folder: id,
        cluster: [1; 16],
        node: [2; 16],
        feature_level: 1,
    };
    open_or_create(&dir, identity).unwrap();
    let root = dir.create_dir(layout::PARTITIONS).unwrap();
    let manifest = fill(root, id);
    let checkpoints = dir.create_dir(layout::CHECKPOINTS).unwrap();
    let (mut store, none) = CheckpointStore::open(checkpoints, id).unwrap();
    assert_eq!(none, None);
    let state = State::new().encode();
    let sequence = Sequence::new(9);
    store
        .write(&Checkpoint {
            sequence,
            partitions: vec![manifest],
            state,
        })
        .unwrap();
    write_clean_mark(&dir, sequence).unwrap();
    temp
}

fn partition_id() -> PartitionId {
    PartitionId {
        topic: TopicId([7; 16]),
        partition: 0,
    }
}

fn fill(root: Arc<dyn Dir>, folder: FolderId) -> PartitionManifest {
    let volume = Volume::new(root, folder, 4);
    let mut parts = create(
        &volume,
        partition_id(),
        PartitionConfig::default(),
        Offset::ZERO,
    );
    for base in [0, 2, 4] {
        let mut builder = BatchBuilder::new(Codec::Lz4, 1024);
        for record in base..base + 2 {
            let value = format!("flight {record}");
            let headers = [(&b"source"[..], Some(&b"tower"[..]))];
            builder
                .push(
                    None,
                    Some(b"SAN"),
                    Some(value.as_bytes()),
                    headers.into_iter(),
                )
                .unwrap();
        }
        parts.tail.push(CommittedBatch {
            base_offset: Offset::new(base).unwrap(),
            record_count: 2,
            epoch: Epoch(1),
            append_time: APPENDED,
            body: builder.finish().unwrap(),
        });
    }
    parts.writer.flush().unwrap();
    parts.writer.sync().unwrap();
    parts.writer.manifest()
}

/// Flips a bit of the last byte of the partition's segment, which is in its last batch.
fn damage(folder: &Path) {
    let partitions = OsDir::open(folder)
        .unwrap()
        .open_dir(layout::PARTITIONS)
        .unwrap();
    let partition = partitions
        .open_dir(&partition_folder(partition_id()))
        .unwrap();
    let file = partition
        .open(&PartitionFile::Segment(Offset::ZERO).name())
        .unwrap();
    let mut last = [0];
    let position = file.len().unwrap() - 1;
    varvelog_store::fs::read_exact_at(file.as_ref(), &mut last, position).unwrap();
    last[0] ^= 1;
    file.write_at(&last, position).unwrap();
}

async fn run(line: &str, folder: &Path) -> (Result<(), Failure>, String) {
    let line = line.replace("FOLDER", folder.to_str().unwrap());
    let words = ["varvelog", "log", "-o", "json"]
        .into_iter()
        .chain(line.split(' '));
    let Cli { global, command } = Cli::try_parse_from(words).unwrap();
    let capture = Capture::default();
    let output = Output::into(global.output.unwrap(), Box::new(capture.clone()));
    let Command::Log(command) = command else {
        panic!("another command")
    };
    let result = super::run(command, &mut Context { global, output }).await;
    (result, capture.text())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_sound_folder_is_said_to_be_sound() {
    let folder = folder();
    for line in ["verify FOLDER", "verify --records FOLDER"] {
        let (result, text) = run(line, folder.path()).await;
        assert_eq!(result, Ok(()));
        let found = json(&text);
        assert_eq!(found["sound"], true);
        assert_eq!(found["checkpoint"], "9");
        assert_eq!(found["wal"]["frames"], "0");
        assert_eq!(found["partitions"][0]["topic"], TOPIC);
        assert_eq!(found["partitions"][0]["records"], "6");
        assert_eq!(found["partitions"][0]["batches"], "3");
    }
}

#[tokio::test]
async fn damage_is_found_named_and_code_65() {
    let folder = folder();
    damage(folder.path());
    let (result, text) = run("verify FOLDER", folder.path()).await;
    assert_eq!(result, Err(Failure::silent(Exit::Damage)));
    let found = json(&text);
    assert_eq!(found["sound"], false);
    let damaged = &found["partitions"][0]["damaged"];
    assert_eq!(
        (&damaged[0]["firstOffset"], &damaged[0]["lastOffset"]),
        (&"4".into(), &"5".into())
    );
    assert_eq!(damaged.as_array().unwrap().len(), 1);
    assert_eq!(
        found["partitions"][0]["records"], "4",
        "what is whole is still counted"
    );
}

#[tokio::test]
async fn records_are_dumped_as_fetch_would_show_them() {
    let folder = folder();
    let line = format!("dump FOLDER {TOPIC}/0 --from 3 --limit 2");
    let (result, text) = run(&line, folder.path()).await;
    assert_eq!(result, Ok(()));
    let records: Vec<Value> = text.lines().map(json).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0]["offset"], "3");
    assert_eq!(records[0]["key"], "SAN");
    assert_eq!(records[0]["value"], "flight 3");
    assert_eq!(records[0]["headers"]["source"], "tower");
    assert_eq!(records[0]["timestampMs"], APPENDED.0.to_string());
    assert_eq!(records[1]["offset"], "4");
    let (_, text) = run(&format!("dump FOLDER {TOPIC}/0 -f %o:%v,"), folder.path()).await;
    assert_eq!(text.matches(':').count(), 6);
}

#[tokio::test]
async fn batches_and_segments_are_listed() {
    let folder = folder();
    let (result, text) = run(&format!("dump FOLDER {TOPIC}/0 --batches"), folder.path()).await;
    assert_eq!(result, Ok(()));
    let batches: Vec<Value> = text.lines().map(json).collect();
    assert_eq!(batches.len(), 3);
    assert_eq!(batches[2]["baseOffset"], "4");
    assert_eq!(batches[2]["recordCount"], 2);
    assert_eq!(batches[2]["codec"], "lz4");
    assert_eq!(batches[2]["producer"], Value::Null);
    let (result, text) = run("index FOLDER", folder.path()).await;
    assert_eq!(result, Ok(()));
    let segment = &json(&text)["segments"][0];
    assert_eq!(
        (&segment["baseOffset"], &segment["endOffset"]),
        (&"0".into(), &"6".into())
    );
    assert_eq!(segment["sealed"], false);
}

#[tokio::test]
async fn what_is_not_there_is_code_3_and_what_is_in_use_code_4() {
    let empty = tempfile::tempdir().unwrap();
    let (result, _) = run("verify FOLDER", empty.path()).await;
    assert_eq!(result.unwrap_err().exit, Exit::NotFound);
    let untouched: Vec<_> = std::fs::read_dir(empty.path()).unwrap().collect();
    assert!(untouched.is_empty(), "{untouched:?}");
    let folder = folder();
    let (result, _) = run("dump FOLDER flights/0", folder.path()).await;
    assert_eq!(result.unwrap_err().exit, Exit::NotFound);
    let lock = lock_folder(folder.path()).unwrap();
    let (result, _) = run("index FOLDER", folder.path()).await;
    assert_eq!(result.unwrap_err().exit, Exit::Conflict);
    drop(lock);
    assert_eq!(run("index FOLDER", folder.path()).await.0, Ok(()));
}
