//! One group, mode queue: hands out batches, then single records again after a failure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use varvelog_client::proto as v1;
use varvelog_store::batch::Records;

/// Offsets to give out, first and last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) partition: usize,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) attempt: i32,
}

#[derive(Debug)]
struct Lease {
    member: String,
    chunk: Chunk,
    /// Settled by what request; none: held.
    settled: Option<v1::AckRequest>,
    lost: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Member ids that are known.
    pub(crate) members: BTreeSet<String>,
    /// Each time a stream was opened: the id that it brought.
    pub(crate) joins: Vec<String>,
    pub(crate) left: Vec<String>,
    pub(crate) pending: VecDeque<Chunk>,
    leases: BTreeMap<u64, Lease>,
    /// Offsets done, by partition.
    pub(crate) done: BTreeSet<(usize, i64)>,
    pub(crate) dead: Vec<(usize, i64)>,
    pub(crate) acks: u32,
    pub(crate) most_held: usize,
    next_member: u32,
    next_token: u64,
    /// Cut the connections instead of answering the next ack.
    pub(crate) cut_after_ack: bool,
    /// Tell the member this.
    pub(crate) announce: Option<v1::GroupEvent>,
    /// End streams with this.
    pub(crate) end_with: Option<tonic::Code>,
}

impl Groups {
    pub(crate) fn join(&mut self, member_id: &str) -> v1::GroupEvent {
        self.joins.push(member_id.to_owned());
        let known = self.members.contains(member_id);
        let member_id = if known {
            member_id.to_owned()
        } else {
            self.next_member += 1;
            format!("member-{}", self.next_member)
        };
        self.members.insert(member_id.clone());
        let assigned = vec![v1::TopicPartition {
            topic: "t".to_owned(),
            partition: 0,
        }];
        v1::GroupEvent {
            member_id,
            generation: 7,
            assigned,
            revoked: Vec::new(),
        }
    }

    /// The membership is over: what it holds goes back, uncounted.
    pub(crate) fn leave(&mut self, member: &str) {
        self.members.remove(member);
        self.left.push(member.to_owned());
        for lease in self
            .leases
            .values_mut()
            .filter(|lease| lease.member == member)
        {
            if lease.settled.is_none() && !lease.lost {
                lease.lost = true;
                self.pending.push_back(lease.chunk.clone());
            }
        }
    }

    /// All leases are given to nobody: their time was up.
    pub(crate) fn expire_leases(&mut self) {
        for lease in self
            .leases
            .values_mut()
            .filter(|lease| lease.settled.is_none())
        {
            lease.lost = true;
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.leases
            .values()
            .filter(|lease| lease.settled.is_none() && !lease.lost)
            .count()
    }

    pub(crate) fn hand_out(
        &mut self,
        member: &str,
        log: &[Vec<v1::StoredBatch>],
        auto_ack: bool,
    ) -> Option<v1::ConsumeResponse> {
        let chunk = self.pending.pop_front()?;
        let mut response = v1::ConsumeResponse {
            topic: "t".to_owned(),
            partition: i32::try_from(chunk.partition).expect("small"),
            lag_records: 5,
            fence: 3,
            ..Default::default()
        };
        let stored = log[chunk.partition].iter();
        let touches = |batch: &&v1::StoredBatch| {
            batch.base_offset <= chunk.last
                && batch.base_offset + i64::from(batch.record_count) > chunk.first
        };
        let given: Vec<_> = stored.filter(touches).cloned().collect();
        if chunk.attempt == 1 {
            response.leased = vec![v1::OffsetRange {
                first: chunk.first,
                last: chunk.last,
            }];
            response.batches = given;
        } else {
            response.records = given
                .iter()
                .flat_map(|batch| records(batch, &chunk))
                .collect();
        }
        if auto_ack {
            self.done
                .extend((chunk.first..=chunk.last).map(|offset| (chunk.partition, offset)));
            return Some(response);
        }
        self.next_token += 1;
        response.ack_token = Bytes::copy_from_slice(self.next_token.to_string().as_bytes());
        let member = member.to_owned();
        let lease = Lease {
            member,
            chunk,
            settled: None,
            lost: false,
        };
        self.leases.insert(self.next_token, lease);
        self.most_held = self.most_held.max(self.held());
        Some(response)
    }

    pub(crate) fn ack(&mut self, request: &v1::AckRequest) -> Result<v1::AckResponse, ()> {
        self.acks += 1;
        let token = std::str::from_utf8(&request.ack_token)
            .ok()
            .and_then(|text| text.parse().ok());
        let lease = token
            .and_then(|token: u64| self.leases.get_mut(&token))
            .ok_or(())?;
        let chunk = lease.chunk.clone();
        let offsets = chunk.first..=chunk.last;
        let count = i32::try_from(chunk.last - chunk.first + 1).expect("small");
        let mut response = v1::AckResponse::default();
        if lease.lost {
            let reason = v1::ConflictReason::LeaseLost.into();
            let conflict = |offset| v1::SettlementConflict { offset, reason };
            response.conflicts = offsets.map(conflict).collect();
            return Ok(response);
        }
        if lease.settled.as_ref() == Some(request) {
            response.already_settled = count;
            return Ok(response);
        }
        lease.settled = Some(request.clone());
        for offset in offsets {
            let failure = request
                .failures
                .iter()
                .find(|failure| failure.offset == offset);
            let single = Chunk {
                first: offset,
                last: offset,
                ..chunk.clone()
            };
            match failure.map(v1::Failure::action) {
                None => {
                    response.done += 1;
                    self.done.insert((chunk.partition, offset));
                }
                Some(v1::FailureAction::DeadLetter) => {
                    response.dead_lettered += 1;
                    self.dead.push((chunk.partition, offset));
                }
                Some(v1::FailureAction::Release) => {
                    response.released += 1;
                    self.pending.push_back(single);
                }
                Some(v1::FailureAction::Retry | v1::FailureAction::Unspecified) => {
                    response.retried += 1;
                    let attempt = chunk.attempt + 1;
                    self.pending.push_back(Chunk { attempt, ..single });
                }
            }
        }
        Ok(response)
    }

    pub(crate) fn holds(&self, token: &Bytes) -> bool {
        let token = std::str::from_utf8(token)
            .ok()
            .and_then(|text| text.parse().ok());
        let lease = token.and_then(|token: u64| self.leases.get(&token));
        lease.is_some_and(|lease| lease.settled.is_none() && !lease.lost)
    }
}

fn records(batch: &v1::StoredBatch, chunk: &Chunk) -> Vec<v1::Record> {
    let records = Records::open(&batch.batch, 1 << 24).expect("a valid batch");
    let mut shown = Vec::new();
    for record in &records {
        let record = record.expect("a valid record");
        let offset = batch.base_offset + i64::from(record.offset_delta);
        if (chunk.first..=chunk.last).contains(&offset) {
            shown.push(v1::Record {
                offset,
                value: record.value.map(Bytes::copy_from_slice),
                attempt: chunk.attempt,
                message_id: format!("t/{}/{offset}", chunk.partition),
                ..Default::default()
            });
        }
    }
    shown
}
