use std::thread;

use super::samples::{ALL, SMALL, Scratch, batch, fill, offset};
use super::*;
use crate::{Offset, WallMs};

#[test]
fn readers_see_no_gap_while_the_tail_is_flushed() {
    const BATCHES: u32 = 3000;
    let scratch = Scratch::on_system_disk();
    let config = PartitionConfig {
        segment_bytes: 20_000,
        index_interval_bytes: 500,
    };
    let PartitionParts {
        mut writer,
        mut tail,
        reader,
    } = scratch.create(config);
    let end = offset(2 * u64::from(BATCHES));
    thread::scope(|scope| {
        for _ in 0..2 {
            let reader = reader.clone();
            scope.spawn(move || {
                let mut from = Offset::ZERO;
                while from < end {
                    let limit = ReadLimit {
                        batches_max: 7,
                        ..ALL
                    };
                    let batches = reader.read(from, limit).unwrap();
                    for batch in &batches {
                        assert_eq!(batch.base_offset, from);
                        from = batch.end();
                    }
                    assert!(reader.end() >= from);
                    if batches.is_empty() {
                        thread::yield_now();
                    } else {
                        let time = reader.append_time_at(from.minus(1)).unwrap();
                        assert_eq!(time, Some(batches[batches.len() - 1].append_time));
                    }
                }
            });
        }
        scope.spawn(|| {
            while tail.end() < end {
                let time = i64::try_from(tail.end().get()).unwrap();
                tail.push(batch(tail.end(), 2, 20, time));
            }
        });
        scope.spawn(move || {
            while writer.manifest().end < end {
                if writer.flush().unwrap().batches == 0 {
                    thread::yield_now();
                }
            }
        });
    });
    let found = reader.first_at_or_after(WallMs(1001)).unwrap();
    assert_eq!(found, Some((offset(1002), WallMs(1002))));
}

#[test]
fn the_last_record_is_read_while_it_moves_from_the_tail_to_a_segment() {
    const BATCHES: u64 = 4000;
    let PartitionParts {
        mut writer,
        mut tail,
        reader,
    } = Scratch::new().create(SMALL);
    let end = offset(2 * BATCHES);
    tail.push(batch(Offset::ZERO, 2, 10, 0));
    thread::scope(|scope| {
        for _ in 0..2 {
            let reader = reader.clone();
            scope.spawn(move || {
                let mut last = Offset::ZERO;
                while last < end.minus(1) {
                    last = reader.end().minus(1);
                    let read = reader.read(last, ALL).unwrap();
                    let found = read.first().expect("what was there once stays");
                    assert_eq!(found.end(), last.plus(1));
                    assert!(reader.append_time_at(last).unwrap().is_some());
                }
            });
        }
        scope.spawn(move || {
            while tail.end() < end {
                writer.flush().unwrap();
                let time = i64::try_from(tail.end().get()).unwrap();
                tail.push(batch(tail.end(), 2, 10, time));
            }
        });
    });
}

#[test]
fn retention_under_readers_gives_them_records_or_tells_them_the_start() {
    const LAST: u64 = 1195;
    let scratch = Scratch::on_system_disk();
    let mut parts = scratch.create(SMALL);
    let stored = fill(&mut parts, 600, 10);
    let PartitionParts {
        mut writer, reader, ..
    } = parts;
    thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, stored) = (reader.clone(), &stored);
            scope.spawn(move || {
                let mut start = Offset::ZERO;
                while start < offset(LAST) {
                    start = reader.start();
                    let limit = ReadLimit {
                        batches_max: 3,
                        ..ALL
                    };
                    match reader.read(start, limit) {
                        Ok(read) => {
                            let at = stored.iter().position(|batch| batch.end() > start).unwrap();
                            assert_eq!(read[..], stored[at..at + read.len()]);
                            assert!(!read.is_empty());
                        }
                        Err(ReadError::OutOfRange { start: later, .. }) => assert!(later > start),
                        Err(error) => panic!("{error}"),
                    }
                    let time = WallMs(i64::try_from(start.get()).unwrap() * 10);
                    let (found, _) = reader.first_at_or_after(time).unwrap().unwrap();
                    assert!(found >= start);
                    let time = reader.append_time_at(start).unwrap();
                    assert!(time.is_some() || reader.start() > start);
                }
            });
        }
        scope.spawn(move || {
            for start in (0..=LAST).step_by(5) {
                let retired = writer.set_start(offset(start));
                writer.remove_retired(retired).unwrap();
            }
        });
    });
    assert_eq!(reader.start(), offset(LAST));
}
