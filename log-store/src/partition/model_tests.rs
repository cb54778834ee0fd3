use proptest::prelude::*;

use super::samples::{ALL, PARTITION, Scratch, as_stored, batch, is_segment, stamped};
use super::*;
use crate::{Offset, WallMs};

/// One thing that happens to a partition.
#[derive(Debug, Clone)]
enum Deed {
    Push {
        records: u32,
        filler: usize,
        later_ms: i64,
    },
    Flush,
    Roll,
    CloseFiles,
    Reopen,
    /// A restart from a manifest whose state knew only so many of the flushed batches.
    ReopenCut {
        known: prop::sample::Index,
    },
    SetStart {
        at: prop::sample::Index,
        remove: bool,
    },
    DropIndexes,
    Resize {
        segment_bytes: u32,
    },
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        12 => (1..5_u32, 0..120_usize, -2..4_i64)
            .prop_map(|(records, filler, later_ms)| Deed::Push { records, filler, later_ms }),
        1 => Just(Deed::Push { records: 1, filler: 9000, later_ms: 1 }),
        5 => Just(Deed::Flush),
        2 => Just(Deed::Roll),
        1 => Just(Deed::CloseFiles),
        2 => Just(Deed::Reopen),
        2 => any::<prop::sample::Index>().prop_map(|known| Deed::ReopenCut { known }),
        2 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(at, remove)| Deed::SetStart { at, remove }),
        1 => Just(Deed::DropIndexes),
        1 => (100..3000_u32).prop_map(|segment_bytes| Deed::Resize { segment_bytes }),
    ]
}

/// The partition, and beside it what it should be.
struct Pair {
    scratch: Scratch,
    parts: PartitionParts,
    config: PartitionConfig,
    /// Every batch since the partition began.
    all: Vec<StoredBatch>,
    start: Offset,
    /// What the wall clock shows; it steps back at times.
    clock: i64,
    /// The latest append time.
    time: i64,
}

impl Pair {
    fn new(scratch: Scratch) -> Self {
        let config = PartitionConfig {
            segment_bytes: 900,
            index_interval_bytes: 200,
        };
        let parts = scratch.create(config);
        Self {
            scratch,
            parts,
            config,
            all: Vec::new(),
            start: Offset::ZERO,
            clock: 1000,
            time: i64::MIN,
        }
    }

    fn end(&self) -> Offset {
        self.all.last().map_or(Offset::ZERO, StoredBatch::end)
    }

    fn apply(&mut self, deed: &Deed) {
        match deed {
            Deed::Push {
                records,
                filler,
                later_ms,
            } => self.push(*records, *filler, *later_ms),
            Deed::Flush => {
                self.parts.writer.flush().unwrap();
                assert_eq!(self.parts.reader.unflushed_bytes(), 0);
            }
            Deed::Roll => {
                self.parts.writer.roll();
            }
            Deed::CloseFiles => self.parts.writer.close_files(),
            Deed::Reopen => self.reopen(self.end()),
            Deed::ReopenCut { known } => {
                let known = known.index(self.all.len() + 1);
                let end = known
                    .checked_sub(1)
                    .map_or(Offset::ZERO, |last| self.all[last].end());
                self.reopen(end);
            }
            Deed::SetStart { at, remove } => self.set_start(*at, *remove),
            Deed::DropIndexes => self.drop_indexes(),
            Deed::Resize { segment_bytes } => {
                self.config.segment_bytes = *segment_bytes;
                self.parts.writer.set_config(self.config);
            }
        }
    }

    fn push(&mut self, records: u32, filler: usize, later_ms: i64) {
        self.clock += later_ms;
        let batch = batch(self.end(), records, filler, self.clock);
        self.time = self.time.max(batch.append_time.0);
        let mut stored = as_stored(&batch);
        stored.append_time = WallMs(self.time);
        self.all.push(stored);
        self.parts.tail.push(batch);
    }

    /// Restarts with what the state knew, and pushes the rest again, as a replay does.
    fn reopen(&mut self, known: Offset) {
        self.parts.writer.sync().unwrap();
        let mut manifest = self.parts.writer.manifest();
        manifest.cut_to(known);
        let mut encoded = Vec::new();
        manifest.encode(&mut encoded);
        let manifest = PartitionManifest::decode(&encoded).unwrap();
        self.parts = self.scratch.reopen(&manifest, self.config);
        assert_eq!(self.parts.reader.end(), manifest.end);
        for batch in self
            .all
            .iter()
            .filter(|batch| batch.base_offset >= manifest.end)
        {
            self.parts.tail.push(CommittedBatch {
                base_offset: batch.base_offset,
                record_count: batch.record_count,
                epoch: batch.epoch,
                append_time: batch.append_time,
                body: batch.body.clone(),
            });
        }
        self.parts.tail.set_start(self.start);
    }

    fn set_start(&mut self, at: prop::sample::Index, remove: bool) {
        let span = usize::try_from(self.end().since(self.start)).unwrap();
        self.start = self.start.plus(at.index(span + 1) as u64);
        let retired = self.parts.writer.set_start(self.start);
        assert!(retired.iter().all(|segment| segment.end <= self.start));
        if remove {
            self.parts.writer.remove_retired(retired).unwrap();
        }
    }

    fn drop_indexes(&mut self) {
        self.parts.writer.close_files();
        let name = crate::layout::partition_folder(PARTITION);
        let Ok(folder) = self.scratch.volume.root.open_dir(&name) else {
            return;
        };
        for file in folder.list().unwrap() {
            if !is_segment(&file) {
                folder.remove(&file).unwrap();
            }
        }
    }

    fn expected(&self, from: Offset) -> Vec<StoredBatch> {
        self.all
            .iter()
            .filter(|batch| batch.end() > from)
            .cloned()
            .collect()
    }

    fn check(&self, probe: usize) {
        let reader = &self.parts.reader;
        assert_eq!((reader.start(), reader.end()), (self.start, self.end()));
        assert_eq!(
            stamped(reader.read(self.start, ALL).unwrap()),
            self.expected(self.start)
        );
        let span = usize::try_from(self.end().since(self.start)).unwrap();
        let from = self.start.plus((probe % (span + 1)) as u64);
        self.check_reads(from, probe);
        self.check_times(from);
        let segments = reader.segments();
        assert!(segments.is_sorted_by(|a, b| a.end == b.base));
        let on_disk: u64 = segments
            .iter()
            .map(|segment| u64::from(segment.bytes))
            .sum();
        assert_eq!(reader.bytes(), on_disk + reader.unflushed_bytes());
        assert_eq!(
            self.scratch.volume.unflushed_bytes(),
            reader.unflushed_bytes()
        );
    }

    fn check_reads(&self, from: Offset, probe: usize) {
        let reader = &self.parts.reader;
        let expected = self.expected(from);
        let until = from.plus((probe % 17) as u64);
        let limit = ReadLimit { until, ..ALL };
        let some = stamped(reader.read(from, limit).unwrap());
        let in_front = expected
            .iter()
            .filter(|batch| batch.base_offset < until && from < until);
        assert_eq!(some, in_front.cloned().collect::<Vec<_>>());
        let limit = ReadLimit {
            bytes_max: 300,
            batches_max: 3,
            ..ALL
        };
        let few = stamped(reader.read(from, limit).unwrap());
        assert_eq!(few[..], expected[..few.len()]);
        assert!(few.len() <= 3 && few.is_empty() == expected.is_empty());
        assert!(few.len() < 2 || few.iter().map(|batch| batch.body.len()).sum::<usize>() <= 300);
        let outside = [self.start.get().checked_sub(1), Some(self.end().get() + 1)];
        for outside in outside.into_iter().flatten().filter_map(Offset::new) {
            let refusal = reader.read(outside, ALL).unwrap_err();
            let ReadError::OutOfRange { start, end } = refusal else {
                panic!("{refusal}")
            };
            assert_eq!((start, end), (self.start, self.end()));
        }
    }

    fn check_times(&self, from: Offset) {
        let reader = &self.parts.reader;
        let holds = |batch: &&StoredBatch| batch.base_offset <= from && from < batch.end();
        let time = self.all.iter().find(holds).map(|batch| batch.append_time);
        assert_eq!(reader.append_time_at(from).unwrap(), time);
        for time in [
            time.map_or(0, |time| time.0),
            self.time,
            self.time + 1,
            i64::MIN,
        ] {
            let first = self
                .expected(self.start)
                .into_iter()
                .find(|b| b.append_time.0 >= time);
            let answer = first.map(|b| (b.base_offset.max(self.start), b.append_time));
            assert_eq!(
                reader.first_at_or_after(WallMs(time)).unwrap(),
                answer,
                "{time}"
            );
        }
    }
}

fn deeds() -> impl Strategy<Value = Vec<(Deed, u16)>> {
    prop::collection::vec((deed(), any::<u16>()), 1..60)
}

fn run(scratch: Scratch, deeds: &[(Deed, u16)]) {
    let mut pair = Pair::new(scratch);
    for (deed, probe) in deeds {
        pair.apply(deed);
        pair.check(usize::from(*probe));
    }
    pair.apply(&Deed::Flush);
    pair.apply(&Deed::Reopen);
    pair.check(0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn a_partition_is_what_was_put_into_it(deeds in deeds()) {
        run(Scratch::new(), &deeds);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_partition_on_the_systems_disk_is_what_was_put_into_it(deeds in deeds()) {
        run(Scratch::on_system_disk(), &deeds);
    }
}
