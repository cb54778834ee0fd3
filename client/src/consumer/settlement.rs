//! What becomes of the records of a delivery, and what the broker made of it.

use varvelog_proto::v1;

use super::failure::Failure;

/// Texts of all failures of one settlement; those beyond are left out, so that no settlement is
/// too large for the broker.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What becomes of the records of a delivery: all are done but those named here.
///
/// ```
/// use std::time::Duration;
/// use varvelog_client::{Failure, Settlement};
///
/// let busy = Failure::transient("busy", "come back in a minute");
/// let settlement = Settlement::done()
///     .retry(17, "timeout", "the shop did not answer")
///     .fail(18, busy.retry_after(Duration::from_secs(60)))
///     .dead_letter(19, "bad-json", "expected a comma")
///     .release(20);
/// # let _ = settlement;
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a settlement does nothing until it is given to a delivery"]
pub struct Settlement {
    failures: Vec<(i64, Failure)>,
    outputs: Vec<v1::Output>,
    up_to_offset: Option<i64>,
}

impl Settlement {
    /// Every record is done.
    pub fn done() -> Self {
        Self::default()
    }

    /// The record at this offset was not processed. Naming an offset twice is refused, and then
    /// nothing is settled.
    pub fn fail(mut self, offset: i64, failure: Failure) -> Self {
        self.failures.push((offset, failure));
        self
    }

    /// The record failed, and may work later; with the last delivery it becomes a dead letter.
    pub fn retry(self, offset: i64, code: impl Into<String>, message: impl Into<String>) -> Self {
        self.fail(offset, Failure::transient(code, message))
    }

    /// The record can never be processed.
    pub fn dead_letter(
        self,
        offset: i64,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        self.fail(offset, Failure::permanent(code, message))
    }

    /// The record was not looked at: it is given out again, and that is not counted.
    pub fn release(self, offset: i64) -> Self {
        self.fail(offset, Failure::released())
    }

    /// Settle only records up to and with this one; the others stay held.
    pub fn up_to(mut self, offset: i64) -> Self {
        self.up_to_offset = Some(offset);
        self
    }

    /// Append these records in the same step: it all happens, or none of it.
    pub fn output(mut self, topic: impl Into<String>, records: Vec<v1::NewRecord>) -> Self {
        self.outputs.push(v1::Output {
            topic: topic.into(),
            records,
        });
        self
    }

    /// The last offset that it settles, if it does not settle all.
    pub(super) fn limit(&self) -> Option<i64> {
        self.up_to_offset
    }

    pub(super) fn request(self, ack_token: bytes::Bytes) -> v1::AckRequest {
        let mut left = TEXT_BYTES_MAX;
        let wire = |(offset, mut failure): (i64, Failure)| {
            failure.shorten_to(left);
            left -= failure.text_bytes();
            failure.at(offset)
        };
        v1::AckRequest {
            ack_token,
            failures: self.failures.into_iter().map(wire).collect(),
            up_to_offset: self.up_to_offset,
            outputs: self.outputs,
        }
    }
}

/// What a settlement did, in records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settled {
    /// Done by this call.
    pub done: u32,
    /// Given out again later.
    pub retried: u32,
    /// Moved to the dead-letter topic.
    pub dead_lettered: u32,
    /// Of those: their topic is full, so they wait in place.
    pub dead_letters_waiting: u32,
    /// Given back, uncounted.
    pub released: u32,
    /// Settled so before: the call was repeated.
    pub already_settled: u32,
    /// Where the outputs went, in order.
    pub outputs: Vec<v1::AppendResult>,
    /// Records that were not settled, since they are not this delivery's any more. Each is or was
    /// somebody else's to process: what was done for it may be done twice.
    pub conflicts: Vec<Conflict>,
}

impl Settled {
    /// Whether every record was settled as asked.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty()
    }
}

/// A record that was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// As in the delivery.
    pub offset: i64,
    /// Why.
    pub reason: v1::ConflictReason,
}

impl From<v1::AckResponse> for Settled {
    fn from(response: v1::AckResponse) -> Self {
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let conflict = |wire: &v1::SettlementConflict| Conflict {
            offset: wire.offset,
            reason: wire.reason(),
        };
        Self {
            done: count(response.done),
            retried: count(response.retried),
            dead_lettered: count(response.dead_lettered),
            dead_letters_waiting: count(response.dead_letters_waiting),
            released: count(response.released),
            already_settled: count(response.already_settled),
            conflicts: response.conflicts.iter().map(conflict).collect(),
            outputs: response.outputs,
        }
    }
}

/// Until when a delivery is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    /// Informative, on the broker's clock: Unix milliseconds.
    pub ack_deadline_ms: i64,
    /// This deadline cannot be moved again.
    pub capped: bool,
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_count_of_the_answer_is_kept() {
        let wire = v1::AckResponse {
            done: 1,
            retried: 2,
            dead_lettered: 3,
            released: 4,
            already_settled: 5,
            dead_letters_waiting: 6,
            outputs: vec![v1::AppendResult::default()],
            conflicts: vec![v1::SettlementConflict {
                offset: 7,
                reason: v1::ConflictReason::SettledOtherwise.into(),
            }],
        };
        let settled = Settled::from(wire);
        assert_eq!((settled.done, settled.retried), (1, 2));
        assert_eq!((settled.dead_lettered, settled.released), (3, 4));
        assert_eq!(
            (settled.already_settled, settled.dead_letters_waiting),
            (5, 6)
        );
        assert_eq!(settled.outputs.len(), 1);
        let reason = v1::ConflictReason::SettledOtherwise;
        assert_eq!(settled.conflicts, [Conflict { offset: 7, reason }]);
        assert!(!settled.is_complete());
    }

    #[test]
    fn no_settlement_is_too_large_and_each_of_its_codes_arrives() {
        let text = "x".repeat(8_000);
        let settlement = (0..10_000).fold(Settlement::done(), |settlement, offset| {
            let failure = Failure::transient("code", text.clone());
            settlement.fail(offset, failure.stack(text.clone()))
        });
        let request = settlement.request(bytes::Bytes::new());
        assert_eq!(request.failures.len(), 10_000);
        assert!(request.failures.iter().all(|f| f.error_code == "code"));
        let first = &request.failures[0];
        assert_eq!(
            (first.error_message.len(), first.error_stack.len()),
            (1_024, 8_000)
        );
        assert!(request.encoded_len() < 2 << 20, "{}", request.encoded_len());
    }
}
