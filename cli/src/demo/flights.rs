//! The traffic: 20,000 flights of early 2001, keyed by the airport they leave from.

use serde_json::Value;
use varvelog_client::{Connection, Producer, Record, SendError};

use crate::output::Progress;

/// One JSON object a line.
const FLIGHTS: &str = include_str!("../../../examples/data/flights-20k.ndjson");
const KEY_FIELD: &str = "origin";
const BATCH_BYTES: usize = 128 << 10;

/// How many there are.
pub(super) fn count() -> u64 {
    FLIGHTS.lines().count() as u64
}

/// Appends all of them, in order for each airport.
pub(super) async fn produce(
    connection: &Connection,
    topic: &str,
    progress: &Progress,
) -> Result<(), SendError> {
    let opened = Producer::config()
        .batch_bytes(BATCH_BYTES)
        .open(connection, topic)
        .await;
    let producer = opened.map_err(|error| SendError::Refused {
        error: error.error,
        may_have_applied: false,
    })?;
    for flight in FLIGHTS.lines() {
        // What becomes of each record, the flush at the end tells.
        drop(producer.send(record(flight)).await?);
        progress.add(1);
    }
    producer.close().await
}

fn record(flight: &'static str) -> Record {
    let record = Record::new(flight);
    let parsed: Value = serde_json::from_str(flight).unwrap_or_default();
    match parsed.get(KEY_FIELD).and_then(Value::as_str) {
        Some(key) => record.key(key.to_owned()),
        None => record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flight_has_an_origin_as_its_key() {
        assert_eq!(count(), 20_000);
        let mut keys: Vec<_> = FLIGHTS
            .lines()
            .map(|f| record(f).key_bytes().map(<[u8]>::to_vec))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 59);
        assert!(keys.iter().all(Option::is_some));
    }
}
