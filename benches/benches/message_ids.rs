//! What a message id costs with 100 and 1,000,000 of them remembered: an append of 100 records with
//! ids that are new (as many old ones go), with ids that are known, and without ids; what a
//! checkpoint takes from the core, what encoding it takes beside it, what a start takes to read it,
//! and the memory.

#![expect(
    clippy::print_stdout,
    reason = "it tells what criterion does not measure"
)]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use varvelog_broker::core::command::{Append, AppendPart, Change, Command, CreateTopic, Stamp};
use varvelog_broker::core::forecast::RoundForecast;
use varvelog_broker::core::message_ids::{IdHash, PartIds};
use varvelog_broker::core::settings::TopicSettings;
use varvelog_broker::core::state::State;
use varvelog_broker::names::TopicName;
use varvelog_store::batch::{BatchBuilder, Codec};
use varvelog_store::{PartitionId, Sequence, TopicId, WallMs};

const RECORDS: u64 = 100;
const FEW: i64 = 100;
const MANY: i64 = 1_000_000;
/// As a topic has it that sets none.
const WINDOW_MS: i64 = 300_000;
const TOPIC: TopicId = TopicId([7; 16]);

/// A state and the commands that made it, counted.
struct Broker {
    state: State,
    commands: u64,
    /// The next id.
    id: u64,
    /// Append time of the next command, and what passes between two.
    wall_ms: i64,
    step_ms: i64,
    body: Bytes,
}

impl Broker {
    fn with(remembered: i64) -> Self {
        let mut batch = BatchBuilder::new(Codec::None, 1 << 16);
        for _ in 0..RECORDS {
            let none = std::iter::empty();
            batch
                .push(None, None, Some(&[7; 100]), none)
                .expect("a small record");
        }
        let mut broker = Self {
            state: State::new(),
            commands: 0,
            id: 0,
            wall_ms: 1_700_000_000_000,
            step_ms: WINDOW_MS * i64::try_from(RECORDS).expect("few") / remembered,
            body: batch.finish().expect("it has records"),
        };
        broker.apply(Change::CreateTopic(CreateTopic {
            topic: TOPIC,
            name: TopicName::parse("orders").expect("a name"),
            partitions: 1,
            settings: TopicSettings::default(),
        }));
        for _ in 0..remembered.unsigned_abs() / RECORDS {
            broker.append_new();
        }
        broker
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            wall: WallMs(self.wall_ms),
            running_ms: 1,
        }
    }

    fn apply(&mut self, change: Change) {
        self.commands += 1;
        let command = Command {
            stamp: self.stamp(),
            change,
        };
        let applied = self.state.apply(Sequence::new(self.commands), &command);
        assert!(applied.outcome.is_ok(), "{:?}", applied.outcome);
    }

    fn append(&self, ids: Option<u64>) -> Append {
        let fresh = ids.map(|first| {
            let ids = (0..).zip(first..first + RECORDS);
            ids.map(|(number, id)| (number, IdHash::of(&id.to_string())))
                .collect()
        });
        Append {
            request: None,
            parts: vec![AppendPart {
                partition: PartitionId {
                    topic: TOPIC,
                    partition: 0,
                },
                record_count: u32::try_from(RECORDS).expect("a hundred"),
                producer: None,
                predicted: None,
                delays: Vec::new(),
                ids: PartIds {
                    fresh: fresh.unwrap_or_default(),
                    repeated: Vec::new(),
                },
                body: self.body.clone(),
            }],
        }
    }

    /// As the core does it: predict, then apply.
    fn carry_out(&mut self, mut append: Append) {
        let mut round = RoundForecast::default();
        self.state
            .predict(&mut round, &mut append, self.stamp())
            .expect("there is room");
        self.apply(Change::Append(append));
    }

    fn append_new(&mut self) {
        let append = self.append(Some(self.id));
        self.id += RECORDS;
        self.wall_ms += self.step_ms;
        self.carry_out(append);
    }
}

fn appends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append 100 records");
    group.throughput(Throughput::Elements(RECORDS));
    for remembered in [FEW, MANY] {
        let mut broker = Broker::with(remembered);
        group.bench_function(BenchmarkId::new("without ids", remembered), |bench| {
            bench.iter(|| {
                let append = broker.append(None);
                broker.carry_out(append);
            });
        });
        group.bench_function(BenchmarkId::new("new ids", remembered), |bench| {
            bench.iter(|| broker.append_new());
        });
        group.bench_function(BenchmarkId::new("known ids", remembered), |bench| {
            bench.iter(|| {
                let append = broker.append(Some(broker.id - RECORDS));
                black_box(broker.state.find_duplicate(&append, broker.stamp()))
            });
        });
    }
    group.finish();
}

fn checkpoints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkpoint of 1,000,000 ids");
    group.sample_size(10);
    let before = resident_kib();
    let broker = Broker::with(MANY);
    println!("{MANY} ids: {} KiB of memory", resident_kib() - before);
    group.bench_function("in the core", |bench| {
        bench.iter_with_large_drop(|| broker.state.snapshot());
    });
    group.bench_function("beside it", |bench| {
        let snapshot = || broker.state.snapshot();
        bench.iter_batched(snapshot, |it| black_box(it.encode()), BatchSize::LargeInput);
    });
    let bytes = broker.state.encode();
    group.bench_function("read at a start", |bench| {
        bench.iter_with_large_drop(|| State::decode(&bytes).expect("it was encoded"));
    });
    group.finish();
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or_default()
}

criterion_group!(benches, checkpoints, appends);
criterion_main!(benches);
