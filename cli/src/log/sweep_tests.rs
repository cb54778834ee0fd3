//! Every file of a data folder, damaged in many places: what `log verify` says of it, and what a
//! broker that starts on it gives its readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use varvelog_broker::clock::MonoMs;
use varvelog_broker::core::command::{Append, AppendPart, Change, CreateTopic};
use varvelog_broker::core::engine::Engine;
use varvelog_broker::core::flusher::{Done, Flusher};
use varvelog_broker::core::forecast::RoundForecast;
use varvelog_broker::core::message_ids::PartIds;
use varvelog_broker::core::recover::{self, OpenOptions, Opened, RecoverError};
use varvelog_broker::core::settings::TopicSettings;
use varvelog_broker::names::TopicName;
use varvelog_store::batch::{BatchBuilder, Codec, Records};
use varvelog_store::fs::{Dir, File, read_whole};
use varvelog_store::identity::Identity;
use varvelog_store::layout;
use varvelog_store::partition::{PartitionReader, ReadError, ReadLimit};
use varvelog_store::sim_fs::SimDisk;
use varvelog_store::wal::WalConfig;
use varvelog_store::{FolderId, PartitionId, TopicId, WallMs};

use super::folder::Folder;
use super::verify::check;
use crate::output::Progress;

const TOPIC: TopicId = TopicId([5; 16]);
const PARTITIONS: u32 = 3;
const RECORDS_A_BATCH: u32 = 3;
/// Flips, and then cuts and holes, of a file.
const FLIPS: u64 = 96;
const CUTS: u64 = 12;
/// A hole is this long.
const HOLE_BYTES: u64 = 512;

/// Values by partition.
type Values = BTreeMap<u32, Vec<String>>;

struct Broker {
    engine: Engine,
    flusher: Flusher,
    time: u64,
    values: Values,
}

fn open(disk: &SimDisk) -> Result<Opened, RecoverError> {
    let options = OpenOptions {
        wal: WalConfig {
            file_bytes: 48 * 1024,
        },
        open_segments_max: 8,
        fresh: Identity {
            folder: FolderId([7; 16]),
            cluster: [8; 16],
            node: [9; 16],
            feature_level: 1,
        },
        unflushed_bytes_max: 1 << 20,
        sync_each_max: 64,
    };
    recover::open(&disk.root(), &options, MonoMs(0))
}

impl Broker {
    fn start(disk: &SimDisk) -> Self {
        let Opened {
            engine, flusher, ..
        } = open(disk).unwrap();
        let mut broker = Self {
            engine,
            flusher,
            time: 0,
            values: Values::new(),
        };
        broker.commit(Change::BrokerStarted { clean: false });
        broker.commit(Change::CreateTopic(CreateTopic {
            topic: TOPIC,
            name: TopicName::parse("flights").unwrap(),
            partitions: PARTITIONS,
            settings: TopicSettings {
                segment_bytes: 2048,
                ..Default::default()
            },
        }));
        broker
    }

    fn commit(&mut self, change: Change) {
        self.time += 1;
        let wall = WallMs(i64::try_from(self.time).unwrap());
        let committed = self.engine.commit_now(change, wall, MonoMs(self.time));
        committed.unwrap().unwrap();
        self.run_tasks();
    }

    fn run_tasks(&mut self) {
        for task in self.engine.applier.take_tasks() {
            if let Done::Checkpointed {
                wal_needed_from, ..
            } = self.flusher.perform(task).unwrap()
            {
                self.engine.release_wal(wal_needed_from).unwrap();
            }
        }
    }

    fn append(&mut self, partition: u32) {
        let values = self.values.entry(partition).or_default();
        let mut builder = BatchBuilder::new(Codec::None, 1024);
        for _ in 0..RECORDS_A_BATCH {
            let value = format!("{partition}-{:0>120}", values.len());
            let pushed = builder.push(None, None, Some(value.as_bytes()), std::iter::empty());
            pushed.unwrap();
            values.push(value);
        }
        let topic = TOPIC;
        let mut append = Append {
            request: None,
            parts: vec![AppendPart {
                delays: Vec::new(),
                ids: PartIds::default(),
                partition: PartitionId { topic, partition },
                record_count: RECORDS_A_BATCH,
                producer: None,
                predicted: None,
                body: builder.finish().unwrap(),
            }],
        };
        let stamp = self.engine.applier.stamp();
        let mut forecast = RoundForecast::default();
        let state = self.engine.applier.state();
        state.predict(&mut forecast, &mut append, stamp).unwrap();
        self.commit(Change::Append(append));
    }
}

/// A folder with two segments in each of three partitions, two checkpoints, and a log with appends
/// behind them, as a killed broker leaves it.
fn folder() -> (SimDisk, Values) {
    let disk = SimDisk::new();
    let mut broker = Broker::start(&disk);
    for round in 0..6 {
        for partition in 0..PARTITIONS {
            broker.append(partition);
        }
        if round >= 4 {
            broker.engine.applier.request_checkpoint();
            broker.run_tasks();
        }
    }
    for partition in 0..PARTITIONS {
        broker.append(partition);
    }
    // The last frame of a log looks torn when it is damaged: let it be one that nobody reads.
    broker.commit(Change::InitProducer {
        name: String::new(),
    });
    (disk.process_kill(), broker.values)
}

/// Path and size of every file.
fn files(dir: &Arc<dyn Dir>, path: &str, found: &mut Vec<(String, u64)>) {
    for name in dir.list().unwrap() {
        let inner = format!("{path}{name}");
        match dir.open_dir(&name) {
            Ok(folder) => files(&folder, &format!("{inner}/"), found),
            Err(_) => found.push((inner, dir.open(&name).unwrap().len().unwrap())),
        }
    }
}

fn file(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut dir = disk.root();
    for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
        dir = dir.open_dir(folder).unwrap();
    }
    dir.open(name).unwrap()
}

#[derive(Debug, Clone, Copy)]
enum Harm {
    Flip(u64),
    Cut(u64),
    Hole(u64),
}

/// Does it; false if that changed no byte.
fn harm(disk: &SimDisk, path: &str, harm: Harm) -> bool {
    let file = file(disk, path);
    let before = read_whole(file.as_ref(), 1 << 20).unwrap();
    match harm {
        Harm::Flip(at) => {
            let byte = before[usize::try_from(at).unwrap()];
            file.write_at(&[byte ^ 1 << (at % 8)], at).unwrap();
        }
        Harm::Cut(bytes) => file.set_len(bytes).unwrap(),
        Harm::Hole(at) => {
            let bytes = HOLE_BYTES.min(before.len() as u64 - at);
            let zeros = vec![0; usize::try_from(bytes).unwrap()];
            file.write_at(&zeros, at).unwrap();
        }
    }
    read_whole(file.as_ref(), 1 << 20).unwrap() != before
}

/// What is done to a file of so many bytes.
fn harms(bytes: u64) -> impl Iterator<Item = Harm> {
    let spread = move |count: u64| {
        let step = (bytes / count).max(1) | 1;
        (0..bytes).step_by(usize::try_from(step).unwrap())
    };
    let flips = spread(FLIPS).map(Harm::Flip);
    let cuts = spread(CUTS).map(Harm::Cut);
    flips.chain(cuts).chain(spread(CUTS).map(Harm::Hole))
}

/// Whether `log verify` says that the folder is sound; none if it does not get that far.
fn is_said_to_be_sound(disk: &SimDisk) -> Option<bool> {
    let folder = Folder::read(disk.root(), None).ok()?;
    let manifests = folder.manifests(None).ok()?;
    let report = check(&folder, &manifests, true, &Progress::new("", None, true)).ok()?;
    for damage in report.partitions.iter().flat_map(|it| &it.damaged) {
        assert!(damage.file.contains("05050505") && damage.file.ends_with("log"));
        assert!(damage.range.first <= damage.range.last);
    }
    Some(report.is_sound(&folder))
}

/// What a reader gets: values with holes. Panics on a value that was not written there.
fn read(reader: &PartitionReader, written: &[String]) -> Vec<Option<String>> {
    let mut values = vec![None; usize::try_from(reader.end().get()).unwrap()];
    let mut offset = reader.start();
    while offset < reader.end() {
        let limit = ReadLimit {
            bytes_max: 1 << 20,
            batches_max: 100,
            until: reader.end(),
        };
        match reader.read(offset, limit) {
            Ok(batches) => {
                for stored in &batches {
                    for record in &Records::open(&stored.body, 1 << 20).unwrap() {
                        let record = record.unwrap();
                        let at = stored.base_offset.plus(record.offset_delta.into());
                        let at = usize::try_from(at.get()).unwrap();
                        let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                        assert_eq!(value, written[at]);
                        values[at] = Some(value);
                    }
                    offset = stored.end();
                }
            }
            Err(ReadError::Corrupt { last, .. }) => offset = last.plus(1),
            Err(error) => panic!("{error}"),
        }
    }
    values
}

/// Starts a broker and reads everything: how many records are not there, and whether the log was
/// cut. None: it does not start.
fn start(disk: &SimDisk, written: &Values, what: &str) -> Option<(usize, bool)> {
    let opened = match open(&disk.process_kill()) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(error.is_damage(), "{what}: {error}");
            return None;
        }
    };
    let catalog = opened.engine.applier.view().catalog();
    let mut lost = 0;
    for (partition, written) in written {
        let topic = catalog.by_id.get(&TOPIC);
        let reader = topic.map(|it| &it.partitions[*partition as usize].reader);
        let values = reader.map(|reader| read(reader, written));
        let there = values.unwrap_or_default();
        lost += written.len() - there.into_iter().flatten().count();
    }
    Some((lost, opened.report.tail.cut.is_some()))
}

#[test]
fn damage_anywhere_is_reported_or_does_no_harm() {
    let (disk, written) = folder();
    assert_eq!(is_said_to_be_sound(&disk), Some(true));
    assert_eq!(start(&disk, &written, "whole"), Some((0, false)));
    let mut all = Vec::new();
    files(&disk.root(), "", &mut all);
    let segments = all.iter().filter(|(path, _)| path.ends_with("0.log"));
    assert!(segments.count() >= 3, "{all:?}");
    let mut states = 0;
    for (path, bytes) in &all {
        let is_index = path.ends_with("index");
        let is_log = path.starts_with(layout::WAL);
        for done in harms(*bytes) {
            let damaged = disk.process_kill();
            let what = format!("{path}: {done:?}");
            if !harm(&damaged, path, done) {
                continue;
            }
            states += 1;
            let sound = is_said_to_be_sound(&damaged);
            let started = start(&damaged, &written, &what);
            // All bytes of segments, checkpoints and identity are checked; those of a log are
            // where something is written that the newest checkpoint does not have.
            if is_index {
                assert_eq!((sound, started), (Some(true), Some((0, false))), "{what}");
            } else if !is_log {
                assert_ne!(sound, Some(true), "{what} is not reported");
            }
            match started {
                None => assert_ne!(sound, Some(true), "{what}: does not start"),
                Some((0, _)) => {}
                Some((lost, true)) => {
                    let at_most = RECORDS_A_BATCH as usize;
                    assert!(
                        is_log && lost <= at_most,
                        "{what}: {lost} lost with the tail"
                    );
                }
                Some((lost, false)) => {
                    assert_ne!(sound, Some(true), "{what}: {lost} lost, and not reported");
                }
            }
        }
    }
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn a_checkpoint_or_log_that_is_gone_is_reported_or_not_needed() {
    let (disk, written) = folder();
    let mut all = Vec::new();
    files(&disk.root(), "", &mut all);
    let of_log = |folder: &str| {
        let of = all.iter().filter(|(path, _)| path.starts_with(folder));
        of.map(|(path, _)| path.clone()).collect::<Vec<_>>()
    };
    let (checkpoints, logs) = (of_log(layout::CHECKPOINTS), of_log(layout::WAL));
    assert_eq!(checkpoints.len(), 2);
    let remove = |paths: &[String]| {
        let disk = disk.process_kill();
        for path in paths {
            let (folder, name) = path.split_once('/').unwrap();
            disk.root().open_dir(folder).unwrap().remove(name).unwrap();
        }
        (
            is_said_to_be_sound(&disk),
            start(&disk, &written, &format!("{paths:?}")),
        )
    };
    assert_eq!(remove(&checkpoints[1..]), (Some(true), Some((0, false))));
    assert_eq!(remove(&logs), (Some(false), None));
    let both = [checkpoints, logs.clone()].concat();
    assert_eq!(remove(&both), (Some(false), None));
}
