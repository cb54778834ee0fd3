//! A broker of a few hundred lines: topics, producers and one kind of group, with faults to order.

mod admin;
mod group;
mod log;
mod members;
mod net;
mod services;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use varvelog_client::proto as v1;
use varvelog_client::{Connection, ConnectionConfig};
use varvelog_store::batch::{BatchBuilder, Codec, Records};

pub(crate) use group::{Chunk, Groups};
pub(crate) use log::{Log, refusal};

/// What to do with a produce request instead of answering it.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Append it, and cut all connections instead of answering.
    CutAfter,
    /// Cut all connections without having looked at it.
    CutBefore,
    /// Refuse it.
    Refuse(v1::StreamError),
    /// Append it and never answer.
    Swallow,
}

/// A produce request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Partition and records of each batch.
    pub(crate) batches: Vec<(i32, u32)>,
}

/// All that the broker knows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) groups: Groups,
    /// For the next produce requests, in order; then none.
    pub(crate) faults: VecDeque<Option<Fault>>,
    pub(crate) requests: Vec<Seen>,
    /// Produce requests read and not looked at.
    pub(crate) unanswered: usize,
    pub(crate) topic_lookups: u32,
    /// Refuses every call to open a session.
    pub(crate) no_sessions: bool,
}

/// The broker.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    net: net::Net,
    /// While true no produce request is looked at.
    stalled: watch::Sender<bool>,
    /// Told after each change of what the broker holds.
    changed: watch::Sender<u64>,
}

impl Fake {
    /// With one topic `t`.
    pub(crate) fn start(partitions: usize) -> Self {
        let (net, incoming) = net::Net::new();
        let fake = Self {
            state: Arc::default(),
            net,
            stalled: watch::Sender::new(false),
            changed: watch::Sender::new(0),
        };
        fake.state()
            .log
            .topics
            .insert("t".to_owned(), vec![Vec::new(); partitions]);
        services::serve(&fake, incoming);
        fake
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test thread panicked")
    }

    /// A connection of its own.
    pub(crate) fn connection(&self) -> Connection {
        ConnectionConfig::new("fake")
            .open_over(self.net.channel())
            .expect("no token")
    }

    /// Break all connections.
    pub(crate) fn cut(&self) {
        self.net.cut();
    }

    /// Refuse connections, or take them again.
    pub(crate) fn set_down(&self, down: bool) {
        self.net.set_down(down);
    }

    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    pub(crate) fn note_change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Wait until what the broker holds is so.
    pub(crate) async fn until(&self, mut wanted: impl FnMut(&State) -> bool) {
        let mut changed = self.changed.subscribe();
        while !wanted(&self.state()) {
            changed.changed().await.expect("the fake lives");
        }
    }

    /// Append one batch of values to a partition of `t`.
    pub(crate) fn preload(&self, partition: usize, values: &[&str]) {
        let mut builder = BatchBuilder::new(Codec::Lz4, 1_024);
        for value in values {
            let none = std::iter::empty();
            builder
                .push(None, None, Some(value.as_bytes()), none)
                .expect("fits");
        }
        let batch = builder.finish().expect("has records");
        self.state().log.append("t", partition, batch);
    }

    /// The values of a partition of `t`, in order.
    pub(crate) fn values(&self, partition: usize) -> Vec<String> {
        let state = self.state();
        let batches = &state.log.topics["t"][partition];
        batches
            .iter()
            .flat_map(|batch| values_of(&batch.batch))
            .collect()
    }

    /// All values of `t`, sorted.
    pub(crate) fn all_values(&self) -> Vec<String> {
        let partitions = self.state().log.topics["t"].len();
        let mut all: Vec<_> = (0..partitions)
            .flat_map(|number| self.values(number))
            .collect();
        all.sort();
        all
    }
}

fn values_of(batch: &Bytes) -> Vec<String> {
    let records = Records::open(batch, 1 << 24).expect("a valid batch");
    let text = |value: Option<&[u8]>| {
        String::from_utf8(value.unwrap_or_default().to_vec()).expect("UTF-8")
    };
    records
        .iter()
        .map(|record| text(record.expect("a valid record").value))
        .collect()
}

/// Metadata of an error.
pub(crate) fn metadata(pairs: &[(&str, i64)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.to_string()))
        .collect()
}
