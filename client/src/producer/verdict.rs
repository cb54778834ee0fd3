//! What an answer means for the batches of its request, and what a broken stream does.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;

use super::error::SendError;
use super::pipeline::{Pipeline, Placed, Request};
use crate::error::{CallError, reason};

impl<T> Pipeline<T> {
    /// The answer to the oldest request. An error: the stream does not keep to the contract.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        sequence: i64,
        answer: Result<v1::ProduceResponse, CallError>,
        draw: f64,
    ) -> Result<(), CallError> {
        let unexpected =
            |what: &str| CallError::local(Code::Internal, format!("the broker answered {what}"));
        let Some(request) = self
            .requests
            .pop_front_if(|oldest| oldest.sequence == sequence)
        else {
            return Err(unexpected("a request that is not the oldest"));
        };
        match answer {
            Ok(response) if response.results.len() == request.batches.len() => {
                self.failures = 0;
                self.pressed = None;
                self.appended(&request, &response);
                Ok(())
            }
            Ok(_) => {
                self.requests.push_front(request);
                Err(unexpected(
                    "with another number of results than there were batches",
                ))
            }
            Err(error) => {
                self.refused(now, &request, &error, draw);
                Ok(())
            }
        }
    }

    fn appended(&mut self, request: &Request, response: &v1::ProduceResponse) {
        for (&(partition, id), result) in request.batches.iter().zip(&response.results) {
            let Some(lane) = self.lanes.get_mut(&partition) else {
                continue;
            };
            let Some(batch) = lane.appended(id) else {
                continue;
            };
            let placed = Placed {
                partition,
                offset: result.offset,
                epoch: result.epoch,
                duplicate: result.duplicate,
                durability: response.durability(),
            };
            self.settle(partition, batch, Ok(placed));
        }
    }

    fn refused(&mut self, now: Instant, request: &Request, error: &CallError, draw: f64) {
        self.pressed = error.is_backpressure().then(|| {
            let since = self.pressed.take().map_or(now, |(since, _)| since);
            (since, error.clone())
        });
        let gap = error.is(reason::SEQUENCE_GAP);
        let mut gap_expected = false;
        for &(partition, id) in &request.batches {
            let Some(lane) = self.lanes.get_mut(&partition) else {
                continue;
            };
            gap_expected |= lane.expects_gap(id);
            let Some(batch) = lane.came_back(id) else {
                continue;
            };
            batch.unknown |= error.may_have_applied();
            batch.last_error = Some(error.clone());
            if gap && is_behind(error) && request.batches.len() == 1 {
                batch.unknown = false;
            }
            if batch.payload.is_none() {
                lane.give_up(id);
                self.rest(partition);
            }
        }
        if error.is(reason::PRODUCER_FENCED) {
            self.ended = Some(error.clone());
            self.fail_all(error);
        } else if error.is_retryable() {
            self.hold(now, error.retry_after(), draw);
        } else if gap && gap_expected {
            if request
                .batches
                .iter()
                .any(|(partition, id)| self.is_unknown(*partition, *id))
            {
                self.send_alone(request);
                self.hold(now, None, draw);
            }
        } else if let &[(partition, id)] = request.batches.as_slice() {
            self.judge(now, partition, id, error, draw);
        } else {
            self.send_alone(request);
        }
    }

    fn is_unknown(&mut self, partition: u32, id: u64) -> bool {
        let lane = self.lanes.get_mut(&partition);
        lane.and_then(|lane| lane.get_mut(id))
            .is_some_and(|batch| batch.unknown)
    }

    /// One batch of several is at fault; the next answers tell which.
    fn send_alone(&mut self, request: &Request) {
        for (partition, id) in &request.batches {
            let lane = self.lanes.get_mut(partition);
            if let Some(batch) = lane.and_then(|lane| lane.get_mut(*id)) {
                batch.solo = true;
            }
        }
    }

    /// A batch that went alone was refused in a way that trying again does not change. Where the
    /// broker has only lost track of the producer, and it is certain that the batch is not in the
    /// log, it goes out under a new identity.
    fn judge(&mut self, now: Instant, partition: u32, id: u64, error: &CallError, draw: f64) {
        let lost_track = error.is(reason::PRODUCER_UNKNOWN)
            || (error.is(reason::SEQUENCE_GAP) && is_behind(error));
        let unknown = self.is_unknown(partition, id);
        if self.config.idempotent && lost_track && !unknown {
            if let Some(lane) = self.lanes.get_mut(&partition) {
                lane.renew_identity();
            }
            self.hold(now, None, draw);
            return;
        }
        let error = error.clone();
        self.fail(
            partition,
            id,
            SendError::Refused {
                error,
                may_have_applied: unknown,
            },
        );
    }

    /// The stream broke, or could not be opened. What is unanswered goes out again, unless trying
    /// again is no use.
    pub(super) fn broken(&mut self, now: Instant, error: &CallError, draw: f64) {
        let sent = error.may_have_applied();
        self.requests.clear();
        for partition in self.active.clone() {
            if let Some(lane) = self.lanes.get_mut(&partition) {
                lane.broke_off(sent);
            }
            self.rest(partition);
        }
        if error.is_retryable() {
            self.hold(now, error.retry_after(), draw);
        } else {
            self.fail_all(error);
        }
    }

    /// Everything fails for the same reason.
    pub(super) fn fail_all(&mut self, error: &CallError) {
        for partition in std::mem::take(&mut self.active) {
            let Some(lane) = self.lanes.get_mut(&partition) else {
                continue;
            };
            let batches: Vec<_> = lane.drain().collect();
            for batch in batches {
                let may_have_applied = batch.unknown || batch.in_flight;
                let error = error.clone();
                let refused = SendError::Refused {
                    error,
                    may_have_applied,
                };
                self.settle(partition, batch, Err(refused));
            }
        }
        self.requests.clear();
    }

    fn hold(&mut self, now: Instant, at_least: Option<Duration>, draw: f64) {
        let delay = self.config.backoff.delay(self.failures, draw);
        self.failures = self.failures.saturating_add(1);
        let until = now + at_least.map_or(delay, |least| least.max(delay));
        self.hold_until = Some(self.hold_until.map_or(until, |held| held.max(until)));
    }
}

/// The broker expects a lower sequence: what it was sent is not in its log.
fn is_behind(error: &CallError) -> bool {
    let numbers = (
        error.metadata_number("expected"),
        error.metadata_number("got"),
    );
    matches!(numbers, (Some(expected), Some(got)) if expected < got)
}
