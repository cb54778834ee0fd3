use std::sync::Arc;

use tokio::sync::watch;
use varvelog_store::batch::Codec;
use varvelog_store::fs::read_whole;
use varvelog_store::layout::{PartitionFile, partition_folder};
use varvelog_store::partition::{CommittedBatch, PartitionConfig, PartitionParts, Volume, create};
use varvelog_store::sim_fs::{Call, Failure, SimDisk};
use varvelog_store::{Epoch, FolderId, Offset, WallMs};

use super::building::build;
use super::reading::{hash_of_key, perform};
use super::samples::{
    APPENDED, DEAD_LETTER, RETRY, SOURCE, Sample, at, copied, dead_at_once, encode, failed_once,
    job, opened,
};
use crate::core::copies::{Copies, Copy, CopyTo, Keys, KeysJob, ReadId, ReadJob, ReadResult};
use crate::core::failure::DeadReason;
use crate::core::settings::TopicSettings;
use crate::names::TopicName;
use crate::view::{Catalog, PartitionView, TopicView, View};

/// A topic of one log, as the broker shows it.
struct Log {
    view: View,
    parts: PartitionParts,
    disk: SimDisk,
}

impl Log {
    fn new() -> Self {
        let disk = SimDisk::new();
        let volume = Volume::new(disk.root(), FolderId([3; 16]), 4);
        let config = PartitionConfig {
            segment_bytes: 1 << 20,
            index_interval_bytes: 4_096,
        };
        let parts = create(&volume, SOURCE, config, Offset::ZERO);
        let (_shown, end) = watch::channel(Offset::MAX);
        let number = usize::try_from(SOURCE.partition).unwrap() + 1;
        let partition = PartitionView {
            id: SOURCE,
            reader: parts.reader.clone(),
            end,
            epoch: Epoch(0),
            epochs: Arc::new([]),
        };
        let topic = TopicView {
            id: SOURCE.topic,
            name: TopicName::parse("orders").unwrap(),
            settings: TopicSettings::default(),
            created: WallMs(0),
            derived: None,
            partitions: vec![partition; number],
            traffic: Arc::default(),
        };
        let mut catalog = Catalog::default();
        catalog.by_id.insert(SOURCE.topic, Arc::new(topic));
        let view = View::default();
        view.publish(catalog);
        Self { view, parts, disk }
    }

    fn append(&mut self, samples: &[Sample], codec: Codec) {
        self.parts.tail.push(CommittedBatch {
            base_offset: self.parts.tail.end(),
            record_count: u32::try_from(samples.len()).unwrap(),
            epoch: Epoch(0),
            append_time: APPENDED,
            body: encode(samples, codec),
        });
    }

    /// Batches of one record each, `from` to `until`.
    fn append_numbered(&mut self, from: u64, until: u64) {
        for number in from..until {
            self.append(&[numbered(number)], Codec::None);
        }
    }

    fn flush(&mut self) {
        self.parts.writer.flush().unwrap();
    }

    /// Changes a byte of a record's value in the first segment.
    fn damage(&self, number: u64) {
        let folder = self
            .disk
            .root()
            .open_dir(&partition_folder(SOURCE))
            .unwrap();
        let file = folder
            .open(&PartitionFile::Segment(Offset::ZERO).name())
            .unwrap();
        let content = read_whole(file.as_ref(), 1 << 20).unwrap();
        let value = numbered(number).value.unwrap();
        let place = content
            .windows(value.len())
            .position(|bytes| bytes == value)
            .unwrap();
        file.write_at(b"V", u64::try_from(place).unwrap()).unwrap();
    }

    fn set_start(&mut self, start: u64) {
        self.parts.tail.set_start(at(start));
        self.parts.writer.set_start(at(start));
    }

    fn copies(&self, copies: Vec<Copy>) -> Copies {
        let done = perform(&self.view, &ReadJob::Copy(job(SOURCE, copies)));
        assert_eq!(done.id, ReadId(1));
        match done.result.unwrap() {
            ReadResult::Copies(copies) => copies,
            ReadResult::Keys(_) | ReadResult::Replay(_) => panic!("of the other kind"),
        }
    }

    fn keys(&self, from: u64, until: u64) -> Keys {
        let job = KeysJob {
            id: ReadId(2),
            partition: SOURCE,
            from: at(from),
            until: at(until),
        };
        let done = perform(&self.view, &ReadJob::Keys(job));
        assert_eq!(done.id, ReadId(2));
        match done.result.unwrap() {
            ReadResult::Keys(keys) => keys,
            ReadResult::Copies(_) | ReadResult::Replay(_) => panic!("of the other kind"),
        }
    }
}

fn numbered(number: u64) -> Sample {
    Sample {
        key: Some(format!("key-{}", number % 7).into_bytes()),
        ..Sample::of_value(format!("value {number}").as_bytes())
    }
}

fn key_of(number: u64) -> u64 {
    hash_of_key(&numbered(number).key.unwrap())
}

fn values(copies: &Copies) -> Vec<String> {
    let copies = copied(&copies.parts, RETRY).into_iter();
    copies
        .map(|copy| String::from_utf8(copy.value.unwrap()).unwrap())
        .collect()
}

fn expected(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let numbers = numbers.into_iter();
    numbers.map(|number| format!("value {number}")).collect()
}

#[test]
fn records_are_copied_from_segments_and_from_memory_alike() {
    let mut log = Log::new();
    log.append_numbered(0, 300);
    log.flush();
    log.append_numbered(300, 310);
    let wanted = || [0, 1, 77, 298, 299, 300, 309];
    let copies = log.copies(wanted().map(failed_once).into());
    assert_eq!(values(&copies), expected(wanted()));
    assert_eq!((copies.missing, copies.left), (Vec::new(), Vec::new()));
}

#[test]
fn every_record_of_large_and_compressed_batches_is_found() {
    let mut log = Log::new();
    let samples: Vec<Sample> = (0..5_000).map(numbered).collect();
    for batch in samples.chunks(1_000) {
        log.append(batch, Codec::Zstd);
    }
    log.flush();
    let copies = log.copies((0..5_000).map(failed_once).collect());
    assert_eq!(values(&copies), expected(0..5_000));
    let copies = log.copies((0..5_000).step_by(999).map(failed_once).collect());
    assert_eq!(values(&copies), expected((0..5_000).step_by(999)));
}

#[test]
fn what_is_below_the_log_start_or_behind_the_end_is_missing() {
    let mut log = Log::new();
    log.append_numbered(0, 10);
    log.set_start(4);
    let copies = log.copies([0, 3, 4, 9, 10, 99].map(failed_once).into());
    assert_eq!(values(&copies), expected([4, 9]));
    assert_eq!(copies.missing, [0, 3, 10, 99].map(at));
}

#[test]
fn what_is_damaged_on_disk_or_in_memory_is_missing_and_the_rest_is_copied() {
    let mut log = Log::new();
    log.append_numbered(0, 20);
    log.flush();
    log.damage(13);
    let mut body = encode(&[numbered(20)], Codec::None).to_vec();
    *body.last_mut().unwrap() ^= 1;
    log.parts.tail.push(CommittedBatch {
        base_offset: at(20),
        record_count: 1,
        epoch: Epoch(0),
        append_time: APPENDED,
        body: body.into(),
    });
    log.append_numbered(21, 22);
    let copies = log.copies((10..22).map(failed_once).collect());
    assert_eq!(copies.missing, [13, 20].map(at));
    assert_eq!(
        values(&copies),
        expected((10..13).chain(14..20).chain(21..22))
    );
}

#[test]
fn all_of_a_partition_that_is_gone_is_missing() {
    let log = Log::new();
    log.view.publish(Catalog::default());
    let copies = log.copies(vec![failed_once(1), failed_once(2)]);
    assert_eq!(
        (copies.parts.len(), copies.missing),
        (0, vec![at(1), at(2)])
    );
    let keys = log.keys(1, 9);
    assert_eq!((keys.until, keys.keys), (at(9), Vec::new()));
}

#[test]
fn a_disk_that_fails_is_told_and_nothing_is_missing_for_it() {
    let mut log = Log::new();
    log.append_numbered(0, 20);
    log.flush();
    log.parts.writer.sync().unwrap();
    log.disk.fail(Call::Read, 1, Failure::Broken);
    let order = ReadJob::Copy(job(SOURCE, vec![failed_once(3)]));
    let trouble = perform(&log.view, &order).result.unwrap_err();
    assert!(!trouble.reason.is_empty());
    let keys = ReadJob::Keys(KeysJob {
        id: ReadId(2),
        partition: SOURCE,
        from: at(0),
        until: at(1),
    });
    log.disk.fail(Call::Read, 1, Failure::Broken);
    assert!(perform(&log.view, &keys).result.is_err());
    // The next try goes well.
    assert_eq!(values(&log.copies(vec![failed_once(3)])), expected([3]));
}

#[test]
fn keys_are_hashed_and_an_empty_one_is_not_none() {
    let mut log = Log::new();
    let mut samples: Vec<Sample> = (0..3).map(numbered).collect();
    samples[1].key = None;
    samples[2].key = Some(Vec::new());
    log.append(&samples, Codec::None);
    let keys = log.keys(0, 3);
    let expected = [Some(key_of(0)), None, Some(hash_of_key(b""))];
    let expected = [0, 1, 2].map(at).into_iter().zip(expected);
    assert_eq!(keys.keys, expected.collect::<Vec<_>>());
    assert_eq!(keys.until, at(3));
}

#[test]
fn keys_of_a_part_of_a_batch_and_over_the_end_are_told_apart() {
    let mut log = Log::new();
    log.append(&(0..10).map(numbered).collect::<Vec<_>>(), Codec::None);
    let offsets = |keys: Keys| keys.keys.iter().map(|(at, _)| at.get()).collect::<Vec<_>>();
    assert_eq!(offsets(log.keys(3, 6)), [3, 4, 5]);
    let over = log.keys(8, 50);
    assert_eq!((over.until, offsets(over)), (at(10), vec![8, 9]));
    let behind = log.keys(10, 50);
    assert_eq!((behind.until, behind.keys.len()), (at(10), 0));
    assert_eq!(log.keys(60, 70).until, at(60));
}

#[test]
fn looking_at_keys_goes_on_behind_the_log_start_and_behind_damage() {
    let mut log = Log::new();
    log.append_numbered(0, 20);
    log.flush();
    log.damage(13);
    log.set_start(5);
    let keys = log.keys(0, 20);
    let expected = (5..13)
        .chain(14..20)
        .map(|number| (at(number), Some(key_of(number))));
    assert_eq!(keys.keys, expected.collect::<Vec<_>>());
    assert_eq!(keys.until, at(20));
}

#[test]
fn one_answer_about_keys_is_bounded_and_the_next_goes_on_where_it_ended() {
    let mut log = Log::new();
    let large = |number| Sample {
        value: Some(vec![7; 1 << 20]),
        ..numbered(number)
    };
    for number in 0..12 {
        log.append(&[large(number)], Codec::None);
    }
    let mut from = 0;
    let mut answers = 0;
    let mut seen = Vec::new();
    while from < 12 {
        let keys = log.keys(from, 12);
        assert!(keys.until > at(from), "at least one record further");
        from = keys.until.get();
        seen.extend(keys.keys);
        answers += 1;
    }
    assert!(answers > 1, "bounded");
    let expected = (0..12).map(|number| (at(number), Some(key_of(number))));
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[test]
fn the_keys_of_what_is_dead_are_told_once_each_if_they_are_asked_for() {
    let keyed = |key: Option<&[u8]>| Sample {
        key: key.map(<[u8]>::to_vec),
        ..Sample::of_value(b"v")
    };
    let (a, b) = (Some(&b"a"[..]), Some(&b"b"[..]));
    let samples = [a, a, None, b, b].map(keyed);
    let batches = [opened(0, APPENDED, &samples)];
    let mut copies: Vec<Copy> = [0, 1, 2, 3].map(dead_at_once).into();
    copies[3].to = CopyTo::DeadLetter(DeadReason::Operator);
    copies.push(failed_once(4));
    let mut job = job(SOURCE, copies);
    assert!(build(&job, &batches).unwrap().dead_keys.is_empty());
    job.tells_keys = true;
    let told = build(&job, &batches).unwrap().dead_keys;
    assert_eq!(
        told,
        [hash_of_key(b"a")],
        "what an operator takes out parks nothing"
    );
}

#[test]
fn of_what_waits_in_place_only_what_is_too_old_is_copied_and_nothing_where_the_group_halts() {
    let in_place = |offset| Copy {
        to: CopyTo::InPlace,
        ..failed_once(offset)
    };
    let old = opened(0, APPENDED, &[numbered(0)]);
    let younger = opened(1, WallMs(APPENDED.0 + 1), &[numbered(1)]);
    let mut job = job(SOURCE, vec![in_place(0), in_place(1)]);
    job.dead_before = Some(WallMs(APPENDED.0 + 1));
    let told = build(&job, [&old, &younger]).unwrap();
    assert_eq!(
        (told.aged, told.left, told.missing),
        (vec![at(0)], vec![], vec![])
    );
    let [dead] = &copied(&told.parts, DEAD_LETTER)[..] else {
        panic!("one record")
    };
    assert_eq!(dead.header("dead-reason").unwrap(), "max_age");
    job.halts = true;
    let told = build(&job, [&old, &younger]).unwrap();
    assert_eq!((told.aged, told.parts), (vec![at(0)], vec![]));
}
