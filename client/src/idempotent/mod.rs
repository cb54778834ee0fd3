//! Effects once: a handler's effect and the note that its record was processed are one transaction.
//!
//! A record may be given to a handler again, for good reasons: the program or the broker died
//! before the settlement was stored, a hold ended while the handler was still at work, somebody
//! replayed dead letters or moved the group back. Its
//! [`message_id`](crate::Message::message_id) is the same each time. [`once`] makes a handler of
//! an effect: it begins a transaction in the database of the effect, notes the id in a table there,
//! runs the effect in the same transaction, and commits. Where the id is noted already it does
//! nothing, and the record is done.
//!
//! So the effect happens once if it happens in that transaction alone. A mail sent, or another
//! service called, from within it does not: such a thing is at least once, as without.
//!
//! # The table
//!
//! `varvelog_processed` holds group, topic, message id and when it was noted; group, topic and id
//! are its key. It is made by the first who opens it. Give each group a table, or let them share
//! one. Ids must stay for as long as their records may come again: the retention of the topic, the
//! retries, and the time that dead letters are kept (30 days unless the group says otherwise).
//! [`ProcessedTable::forget`] removes those that are older; call it now and then.
//!
//! Another database: implement [`ProcessedTable`].

#[cfg(feature = "postgres")]
mod postgres;
mod processed;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;

#[cfg(feature = "postgres")]
pub use postgres::PostgresTable;
pub use processed::{Handled, ProcessedTable, once};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteTable;
