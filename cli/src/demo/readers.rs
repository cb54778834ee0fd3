//! Groups that read the flights, each all of them, its members sharing the partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use tokio_util::sync::CancellationToken;
use varvelog_client::{Connection, GroupConsumer};

use crate::exit::Exit;
use crate::failure::Failure;

/// A group and how many records each of its members read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) group: &'static str,
    pub(super) records: Vec<u64>,
}

impl Shares {
    /// `boarding: 20,000 records by 3 members (6,700 + 6,650 + 6,650)`.
    pub(super) fn to_text(&self) -> String {
        let show = |records: u64| crate::output::show_count(i64::try_from(records).unwrap_or(0));
        let total = show(self.records.iter().sum());
        let members = self.records.len();
        if members == 1 {
            return format!("{}: {total} records by 1 member", self.group);
        }
        let shares: Vec<String> = self.records.iter().map(|records| show(*records)).collect();
        format!(
            "{}: {total} records by {members} members ({})",
            self.group,
            shares.join(" + ")
        )
    }
}

/// The members of a group, waiting for records.
#[derive(Debug)]
pub(super) struct Readers {
    group: &'static str,
    consumers: Vec<GroupConsumer>,
    server: String,
}

/// Joins a group as so many members, which share the partitions before there is a record.
pub(super) async fn join(
    connection: &Connection,
    topic: &str,
    group: &'static str,
    members: usize,
) -> Result<Readers, Failure> {
    let server = connection.address().to_owned();
    let mut consumers = Vec::with_capacity(members);
    for _ in 0..members {
        let opened = GroupConsumer::config(group)
            .topics([topic])
            .open(connection)
            .await;
        consumers.push(opened.map_err(|error| Failure::call(&error, &server))?);
    }
    Ok(Readers {
        group,
        consumers,
        server,
    })
}

impl Readers {
    /// Reads until the members have settled `total` records together.
    pub(super) async fn read_all(self, total: u64) -> Result<Shares, Failure> {
        let left = Arc::new(AtomicU64::new(total));
        let done = CancellationToken::new();
        let reading = self
            .consumers
            .into_iter()
            .map(|consumer| read(consumer, Arc::clone(&left), done.clone(), &self.server));
        Ok(Shares {
            group: self.group,
            records: try_join_all(reading).await?,
        })
    }
}

async fn read(
    mut consumer: GroupConsumer,
    left: Arc<AtomicU64>,
    done: CancellationToken,
    server: &str,
) -> Result<u64, Failure> {
    let mut read = 0;
    while let Some(delivery) = done.run_until_cancelled(consumer.next()).await.flatten() {
        let delivery = delivery.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let settled = delivery
            .ack()
            .await
            .map_err(|error| Failure::call(&error, server))?;
        let records = u64::from(settled.done);
        read += records;
        if left.fetch_sub(records, Ordering::AcqRel) <= records {
            done.cancel();
        }
    }
    consumer
        .close()
        .await
        .map_err(|error| Failure::call(&error, server))?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_where_there_are_several() {
        let many = Shares {
            group: "boarding",
            records: vec![6700, 6650, 6650],
        };
        let text = "boarding: 20,000 records by 3 members (6,700 + 6,650 + 6,650)";
        assert_eq!(many.to_text(), text);
        let one = Shares {
            group: "audit",
            records: vec![20_000],
        };
        assert_eq!(one.to_text(), "audit: 20,000 records by 1 member");
    }
}
