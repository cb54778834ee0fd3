//! One group: hands out batches, then single records again after a failure. Leases end when their
//! time is up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
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
    until: Instant,
    /// The failure that each record was settled with; none: it is done.
    settled: BTreeMap<i64, Option<v1::Failure>>,
    lost: bool,
}

impl Lease {
    fn is_held(&self) -> bool {
        let records = usize::try_from(self.chunk.last - self.chunk.first + 1).expect("small");
        !self.lost && self.settled.len() < records
    }

    /// What is not settled yet, to give out again.
    fn open(&self, attempt: i32) -> Vec<Chunk> {
        let offsets = self.chunk.first..=self.chunk.last;
        if self.settled.is_empty() {
            let chunk = self.chunk.clone();
            return vec![Chunk { attempt, ..chunk }];
        }
        let open = offsets.filter(|offset| !self.settled.contains_key(offset));
        open.map(|offset| single(&self.chunk, offset, attempt))
            .collect()
    }
}

/// A member, as it joined.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asking {
    pub(crate) member: String,
    pub(crate) auto_ack: bool,
    pub(crate) as_batches: bool,
}

#[derive(Debug)]
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
    /// Every failure that was settled, in order.
    pub(crate) failures: Vec<v1::Failure>,
    pub(crate) acks: u32,
    /// When each hold was extended.
    pub(crate) extends: Vec<Instant>,
    pub(crate) most_held: usize,
    pub(crate) config: v1::GroupConfig,
    /// How long a lease lasts.
    pub(crate) hold: Duration,
    /// No extension is granted beyond this.
    pub(crate) hold_until: Option<Instant>,
    next_member: u32,
    next_token: u64,
    /// Cut the connections instead of answering the next ack.
    pub(crate) cut_after_ack: bool,
    /// Tell the member this.
    pub(crate) announce: Option<v1::GroupEvent>,
    /// End streams with this.
    pub(crate) end_with: Option<tonic::Code>,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            members: BTreeSet::new(),
            joins: Vec::new(),
            left: Vec::new(),
            pending: VecDeque::new(),
            leases: BTreeMap::new(),
            done: BTreeSet::new(),
            dead: Vec::new(),
            failures: Vec::new(),
            acks: 0,
            extends: Vec::new(),
            most_held: 0,
            config: v1::GroupConfig::default(),
            hold: Duration::from_hours(24),
            hold_until: None,
            next_member: 0,
            next_token: 0,
            cut_after_ack: false,
            announce: None,
            end_with: None,
        }
    }
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
        let mine = v1::TopicPartition {
            topic: "t".to_owned(),
            partition: 0,
        };
        let assigned = match self.config.mode() {
            v1::GroupMode::Queue => Vec::new(),
            v1::GroupMode::Unspecified | v1::GroupMode::Stream => vec![mine],
        };
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
            if lease.is_held() {
                lease.lost = true;
                self.pending.extend(lease.open(lease.chunk.attempt));
            }
        }
    }

    /// All leases are given to nobody: their time was up.
    pub(crate) fn expire_leases(&mut self) {
        for lease in self.leases.values_mut().filter(|lease| lease.is_held()) {
            lease.lost = true;
        }
    }

    /// Leases whose time is up are given out again, counted.
    pub(crate) fn expire_due(&mut self, now: Instant) {
        for lease in self.leases.values_mut().filter(|lease| lease.is_held()) {
            if lease.until <= now {
                lease.lost = true;
                self.pending.extend(lease.open(lease.chunk.attempt + 1));
            }
        }
    }

    /// When the first lease ends.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let held = self.leases.values().filter(|lease| lease.is_held());
        held.map(|lease| lease.until).min()
    }

    pub(crate) fn held(&self) -> usize {
        let held = |lease: &&Lease| lease.is_held();
        self.leases.values().filter(held).count()
    }

    pub(crate) fn hand_out(
        &mut self,
        asking: &Asking,
        log: &[Vec<v1::StoredBatch>],
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
        if chunk.attempt == 1 && asking.as_batches {
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
        if asking.auto_ack {
            self.done
                .extend((chunk.first..=chunk.last).map(|offset| (chunk.partition, offset)));
            return Some(response);
        }
        self.next_token += 1;
        response.ack_token = Bytes::copy_from_slice(self.next_token.to_string().as_bytes());
        let lease = Lease {
            member: asking.member.clone(),
            chunk,
            until: Instant::now() + self.hold,
            settled: BTreeMap::new(),
            lost: false,
        };
        self.leases.insert(self.next_token, lease);
        self.most_held = self.most_held.max(self.held());
        Some(response)
    }

    pub(crate) fn ack(&mut self, request: &v1::AckRequest) -> Result<v1::AckResponse, ()> {
        self.acks += 1;
        let lease = self.leases.get_mut(&token(&request.ack_token)?).ok_or(())?;
        let chunk = lease.chunk.clone();
        let last = request.up_to_offset.unwrap_or(chunk.last).min(chunk.last);
        let mut response = v1::AckResponse::default();
        for offset in chunk.first..=last {
            let failure = request
                .failures
                .iter()
                .find(|failure| failure.offset == offset);
            if let Some(before) = lease.settled.get(&offset) {
                if before.as_ref() == failure {
                    response.already_settled += 1;
                } else {
                    let reason = v1::ConflictReason::SettledOtherwise;
                    response.conflicts.push(conflict(offset, reason));
                }
                continue;
            }
            if lease.lost {
                let reason = v1::ConflictReason::LeaseLost;
                response.conflicts.push(conflict(offset, reason));
                continue;
            }
            lease.settled.insert(offset, failure.cloned());
            self.failures.extend(failure.cloned());
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
                    let again = single(&chunk, offset, chunk.attempt);
                    self.pending.push_back(again);
                }
                Some(v1::FailureAction::Retry | v1::FailureAction::Unspecified) => {
                    response.retried += 1;
                    let again = single(&chunk, offset, chunk.attempt + 1);
                    self.pending.push_back(again);
                }
            }
        }
        Ok(response)
    }

    /// None: it is held no more.
    pub(crate) fn extend(&mut self, given: &Bytes) -> Option<v1::ExtendAckResponse> {
        let (now, hold) = (Instant::now(), self.hold);
        let lease = self.leases.get_mut(&token(given).ok()?)?;
        if !lease.is_held() {
            return None;
        }
        let end = self.hold_until.unwrap_or(now + hold);
        lease.until = end.min(now + hold);
        self.extends.push(now);
        Some(v1::ExtendAckResponse {
            ack_deadline_ms: 99,
            capped: end < now + hold,
        })
    }
}

fn token(given: &Bytes) -> Result<u64, ()> {
    let text = std::str::from_utf8(given).map_err(drop)?;
    text.parse().map_err(drop)
}

fn single(chunk: &Chunk, offset: i64, attempt: i32) -> Chunk {
    Chunk {
        partition: chunk.partition,
        first: offset,
        last: offset,
        attempt,
    }
}

fn conflict(offset: i64, reason: v1::ConflictReason) -> v1::SettlementConflict {
    let reason = reason.into();
    v1::SettlementConflict { offset, reason }
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
