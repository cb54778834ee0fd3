//! `AckRequest` on the wire: failures become texts within their bounds, the records of outputs are
//! counted and left where they lie.

use std::collections::BTreeSet;
use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::Offset;

use super::content_hash::ContentHash;
use super::new_record::duration;
use super::produce_in::{RECORDS, REQUEST_RECORDS_MAX};
use crate::core::failure::FailureText;
use crate::core::request::{AckToken, FailureAction, RecordFailure};
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::wire::Fields;
use crate::service::{checks, token};

/// Most failures that one call names.
const FAILURES_MAX: usize = 10_000;
/// Bounds of a delay that a failure asks for.
const RETRY_AFTER: (Duration, Duration) = (Duration::ZERO, Duration::from_hours(24));

/// An ack, checked as far as it can be without knowing the topics of its outputs.
#[derive(Debug, Clone)]
pub struct AckIn<'a> {
    /// Of the response.
    pub token: AckToken,
    /// Of the response, by its first append.
    pub up_to: Option<Offset>,
    /// At most 10,000, each of another offset, in the order of the wire.
    pub failures: Vec<RecordFailure>,
    /// At most 10,000 records in all, and at least one in each.
    pub outputs: Vec<OutputIn<'a>>,
    /// Of the token and of what it is said to have done, outputs left out.
    pub hash: u64,
}

/// Records for one topic, not yet walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputIn<'a> {
    /// As sent.
    pub topic: &'a str,
    /// How many records there are.
    pub records: u32,
    /// The whole `Output`.
    pub wire: &'a [u8],
}

impl<'a> AckIn<'a> {
    /// Walks and checks an ack.
    pub fn read(wire: &'a [u8]) -> Result<Self, CallFailure> {
        let (mut ack_token, mut up_to) = ([].as_slice(), None);
        let mut failures = Vec::new();
        let mut outputs = Vec::new();
        let mut records = 0;
        let mut fields = Fields::new(wire);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => ack_token = field.bytes()?,
                2 if failures.len() == FAILURES_MAX => return Err(too_many_failures()),
                2 => failures.push(failure_in(field.bytes()?, failures.len())?),
                3 => up_to = Some(field.int64()?),
                4 => outputs.push(output_in(field.bytes()?, outputs.len(), &mut records)?),
                _ => {}
            }
        }
        let token = token::decode(ack_token)?;
        check_named_once(&failures)?;
        let up_to = up_to.map(|offset| checked_up_to(offset, &token));
        let up_to = up_to.transpose()?;
        let hash = hash_of(ack_token, up_to, &failures);
        Ok(Self {
            token,
            up_to,
            failures,
            outputs,
            hash,
        })
    }
}

fn too_many_failures() -> CallFailure {
    let what = format!("at most {FAILURES_MAX} are allowed in one call");
    FieldViolation::bound("failures", FAILURES_MAX, FAILURES_MAX + 1, what).into()
}

fn failure_in(wire: &[u8], index: usize) -> Result<RecordFailure, CallFailure> {
    let path = |field: &str| format!("failures[{index}].{field}");
    let (mut offset, mut action, mut retry_after) = (0, 0, None);
    let [mut code, mut message, mut stack] = [[].as_slice(); 3];
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => offset = field.int64()?,
            2 => action = field.int32()?,
            3 => code = field.bytes()?,
            4 => message = field.bytes()?,
            5 => stack = field.bytes()?,
            6 => retry_after = Some(duration(field.bytes()?)?),
            _ => {}
        }
    }
    let [code, message, stack] = [code, message, stack].map(String::from_utf8_lossy);
    Ok(RecordFailure {
        offset: checks::offset(&path("offset"), offset)?,
        action: match checks::known(&path("action"), action)? {
            v1::FailureAction::Unspecified => FailureAction::ByPolicy,
            v1::FailureAction::Retry => FailureAction::Retry,
            v1::FailureAction::DeadLetter => FailureAction::DeadLetter,
            v1::FailureAction::Release => FailureAction::Release,
        },
        text: FailureText::cut(&code, &message, &stack),
        retry_after_ms: checks::duration_ms(
            &path("retry_after"),
            retry_after.as_ref(),
            RETRY_AFTER,
        )?,
    })
}

fn output_in<'a>(
    wire: &'a [u8],
    index: usize,
    records_of_all: &mut u32,
) -> Result<OutputIn<'a>, CallFailure> {
    let (mut topic, mut records) = ("", 0_u32);
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => topic = field.text()?,
            RECORDS => {
                field.bytes()?;
                records += 1;
                *records_of_all += 1;
                if *records_of_all > REQUEST_RECORDS_MAX {
                    let what = format!("at most {REQUEST_RECORDS_MAX} records are allowed");
                    let got = *records_of_all;
                    return Err(
                        FieldViolation::bound("outputs", REQUEST_RECORDS_MAX, got, what).into(),
                    );
                }
            }
            _ => {}
        }
    }
    if records == 0 {
        let field = format!("outputs[{index}].records");
        return Err(FieldViolation::new(field, "at least one is needed").into());
    }
    Ok(OutputIn {
        topic,
        records,
        wire,
    })
}

fn check_named_once(failures: &[RecordFailure]) -> Result<(), FieldViolation> {
    let mut named = BTreeSet::new();
    for (index, failure) in failures.iter().enumerate() {
        if !named.insert(failure.offset) {
            let field = format!("failures[{index}].offset");
            let what = format!("{} is named twice", failure.offset);
            return Err(FieldViolation::new(field, what));
        }
    }
    Ok(())
}

/// Outside the response there is nothing to settle up to.
fn checked_up_to(offset: i64, token: &AckToken) -> Result<Offset, FieldViolation> {
    let first = token.origins.first().copied().unwrap_or(token.first);
    let last = token.origins.last().copied().unwrap_or(token.last);
    match Offset::from_i64(offset) {
        Some(offset) if (first..=last).contains(&offset) => Ok(offset),
        Some(_) | None => {
            let limit = format!("{first} to {last}");
            let what = "must be an offset of the response";
            Err(FieldViolation::bound("up_to_offset", limit, offset, what))
        }
    }
}

fn hash_of(token: &[u8], up_to: Option<Offset>, failures: &[RecordFailure]) -> u64 {
    let mut hash = ContentHash::new();
    hash.bytes(token);
    hash.number(up_to.map_or(u64::MAX, Offset::get));
    let mut failed: Vec<(Offset, FailureAction)> = failures
        .iter()
        .map(|failure| (failure.offset, failure.action))
        .collect();
    failed.sort_unstable_by_key(|(offset, _)| *offset);
    for (offset, action) in failed {
        hash.number(offset.get());
        hash.number(match action {
            FailureAction::ByPolicy => 0,
            FailureAction::Retry => 1,
            FailureAction::DeadLetter => 2,
            FailureAction::Release => 3,
        });
    }
    hash.finish()
}

/// The hash of an ack and of its outputs: each with its topic, the partitions that it has, and the
/// hash of its records.
pub fn outputs_hash<'a>(ack: u64, outputs: impl Iterator<Item = (&'a str, u32, u64)>) -> u64 {
    let mut hash = ContentHash::new();
    hash.number(ack);
    for (topic, partitions, content) in outputs {
        hash.bytes(topic.as_bytes());
        hash.number(u64::from(partitions));
        hash.number(content);
    }
    hash.finish()
}
