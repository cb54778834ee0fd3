//! Message ids of the records of one request.

use std::collections::HashMap;
use std::iter::Peekable;

use crate::core::reserved_headers::MESSAGE_ID_BYTES_MAX;
use crate::service::status::FieldViolation;

/// Name of the header that holds a record's message id.
pub(super) const MESSAGE_ID_HEADER: &str = "varvelog-message-id";

/// Refuses an id that is too long.
pub(super) fn check_id(path: impl FnOnce() -> String, id: &str) -> Result<(), FieldViolation> {
    if id.len() <= MESSAGE_ID_BYTES_MAX {
        return Ok(());
    }
    let what = format!("at most {MESSAGE_ID_BYTES_MAX} bytes are allowed");
    Err(FieldViolation::bound(
        path(),
        MESSAGE_ID_BYTES_MAX,
        id.len(),
        what,
    ))
}

/// Which records of a request have an id that came before in it: of those the first counts.
#[derive(Debug, Default)]
pub(super) struct IdsIn {
    seen: HashMap<String, u32>,
    /// Number of the record, and of the first one with its id; rising.
    firsts: Vec<(u32, u32)>,
}

impl IdsIn {
    /// Whether the id of record `index` came before. An empty one is none.
    pub(super) fn is_repeated(&mut self, index: usize, id: &str) -> bool {
        if id.is_empty() {
            return false;
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let first = self.seen.get(id).copied();
        match first {
            Some(first) => self.firsts.push((number, first)),
            None => drop(self.seen.insert(id.to_owned(), number)),
        }
        first.is_some()
    }

    /// Record and first record with its id, rising.
    pub(super) fn firsts(&self) -> Peekable<impl Iterator<Item = (u32, u32)> + use<>> {
        self.firsts.clone().into_iter().peekable()
    }

    /// The records whose id came before.
    pub(super) fn repeated(&self) -> Vec<u32> {
        self.firsts.iter().map(|it| it.0).collect()
    }
}
