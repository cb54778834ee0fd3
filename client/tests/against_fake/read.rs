//! Reading without a group.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Code;
use varvelog_client::error::reason;
use varvelog_client::{OnLost, Position, ReadError, Reader, ReaderConfig, TailConfig};

use crate::fake::Fake;

/// Two partitions of three batches of two records.
fn filled() -> Fake {
    let fake = Fake::start(2);
    for partition in 0..2 {
        for batch in 0..3 {
            let value = |record: usize| format!("{partition}-{}", batch * 2 + record);
            fake.preload(partition, &[&value(0), &value(1)]);
        }
    }
    fake
}

async fn open(fake: &Fake, config: ReaderConfig) -> Reader {
    config.open(&fake.connection()).await.expect("opened")
}

/// Offsets by partition, to the end.
async fn drain(reader: &mut Reader) -> BTreeMap<u32, Vec<i64>> {
    let mut read = BTreeMap::<u32, Vec<i64>>::new();
    while let Some(batch) = reader.next().await {
        let batch = batch.expect("readable");
        for record in batch.records {
            let value = format!("{}-{}", batch.partition, record.offset);
            assert_eq!(record.value.as_deref(), Some(value.as_bytes()));
            read.entry(batch.partition).or_default().push(record.offset);
        }
    }
    read
}

fn both(offsets: impl Iterator<Item = i64>) -> BTreeMap<u32, Vec<i64>> {
    let offsets: Vec<_> = offsets.collect();
    BTreeMap::from([(0, offsets.clone()), (1, offsets)])
}

#[tokio::test(start_paused = true)]
async fn a_reader_reads_all_partitions_in_order_to_the_end() {
    let fake = filled();
    let mut reader = open(&fake, Reader::config("t").stop_at_end(true)).await;
    assert_eq!(drain(&mut reader).await, both(0..6));
    assert_eq!(reader.positions().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_begins_where_it_is_told_also_within_a_batch() {
    let fake = filled();
    let config = || Reader::config("t").stop_at_end(true);
    let mut reader = open(&fake, config().start(Position::LastN(3))).await;
    assert_eq!(drain(&mut reader).await, both(3..6));
    let mut reader = open(&fake, config().partitions([1]).start_at(1, 5)).await;
    assert_eq!(drain(&mut reader).await, BTreeMap::from([(1, vec![5])]));
    let mut reader = open(&fake, config().start(Position::Latest)).await;
    assert_eq!(drain(&mut reader).await, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_appended_after_it_was_opened_is_not_read_when_it_stops_at_the_end() {
    let fake = filled();
    let mut reader = open(&fake, Reader::config("t").stop_at_end(true)).await;
    fake.preload(0, &["0-6", "0-7"]);
    assert_eq!(drain(&mut reader).await, both(0..6));
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_more_and_survives_broken_connections() {
    let fake = filled();
    let mut reader = open(&fake, Reader::config("t").start(Position::Latest)).await;
    tokio::spawn({
        let fake = fake.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            fake.set_down(true);
            tokio::time::sleep(Duration::from_secs(30)).await;
            fake.preload(1, &["1-6"]);
            fake.set_down(false);
        }
    });
    let batch = reader.next().await.expect("not ended").expect("readable");
    assert_eq!(
        (batch.partition, batch.next_offset, batch.latest_offset),
        (1, 7, 7)
    );
    assert_eq!(batch.records.len(), 1);
    assert_eq!(reader.positions().collect::<Vec<_>>(), [(0, 6), (1, 7)]);
}

#[tokio::test(start_paused = true)]
async fn records_that_are_gone_are_an_error_or_passed_over_as_told() {
    let fake = filled();
    let config = |on_lost| {
        let config = Reader::config("t").partitions([0]).start_at(0, 0);
        config.stop_at_end(true).on_lost(on_lost)
    };
    fake.state().log.earliest = 4;
    let mut reader = open(&fake, config(OnLost::Fail)).await;
    let error = reader.next().await.expect("an error").expect_err("gone");
    assert!(
        matches!(
            error,
            ReadError::Lost {
                partition: 0,
                offset: 0,
                earliest: 4
            }
        ),
        "{error}"
    );
    assert!(reader.next().await.is_none());
    let mut reader = open(&fake, config(OnLost::Earliest)).await;
    assert_eq!(drain(&mut reader).await, BTreeMap::from([(0, vec![4, 5])]));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_batch_stops_its_partition_and_no_other() {
    let fake = filled();
    {
        let mut state = fake.state();
        let batch = &mut state.log.topics.get_mut("t").expect("there")[0][1];
        let mut bytes = batch.batch.to_vec();
        *bytes.last_mut().expect("not empty") ^= 1;
        batch.batch = bytes.into();
    }
    let mut reader = open(&fake, Reader::config("t").stop_at_end(true)).await;
    let mut errors = Vec::new();
    let mut records = [0, 0];
    while let Some(batch) = reader.next().await {
        match batch {
            Ok(batch) => {
                let partition = usize::try_from(batch.partition).expect("small");
                records[partition] += batch.records.len();
            }
            Err(error) => errors.push(error),
        }
    }
    assert!(
        matches!(
            errors[..],
            [ReadError::Corrupt {
                partition: 0,
                offset: 2,
                ..
            }]
        ),
        "{errors:?}"
    );
    assert_eq!(records, [2, 6], "what is before it is read");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_there_gives_no_reader() {
    let fake = filled();
    let error = Reader::config("nowhere")
        .open(&fake.connection())
        .await
        .expect_err("unknown");
    assert!(error.is(reason::TOPIC_NOT_FOUND) && error.code() == Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_tail_gives_records_then_its_error_then_ends() {
    let fake = filled();
    let mut tail = TailConfig::new(["t"])
        .open(&fake.connection())
        .await
        .expect("opened");
    let batch = tail.next().await.expect("not ended").expect("records");
    assert_eq!((batch.topic.as_str(), batch.records[0].offset), ("t", 4));
    let error = tail
        .next()
        .await
        .expect("an error")
        .expect_err("topic gone");
    assert!(error.is(reason::TOPIC_NOT_FOUND));
    assert!(tail.next().await.is_none());
}
