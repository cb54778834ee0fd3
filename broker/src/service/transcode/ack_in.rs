//! `AckRequest` on the wire.

use varvelog_store::Offset;

use crate::core::request::{AckToken, SettleRequest};
use crate::service::status::{CallFailure, EdgeRefusal, FieldViolation};
use crate::service::token;
use crate::service::wire::Fields;

/// Walks and checks an ack. Failures and outputs are told apart from none and looked at no
/// further.
pub fn ack_in(wire: &[u8]) -> Result<SettleRequest, CallFailure> {
    let (mut ack_token, mut up_to) = ([].as_slice(), None);
    let (mut has_failures, mut has_outputs) = (false, false);
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => ack_token = field.bytes()?,
            2 => {
                field.bytes()?;
                has_failures = true;
            }
            3 => up_to = Some(field.int64()?),
            4 => {
                field.bytes()?;
                has_outputs = true;
            }
            _ => {}
        }
    }
    let token = token::decode(ack_token)?;
    if has_failures {
        return Err(EdgeRefusal::not_implemented("failures").into());
    }
    if has_outputs {
        return Err(EdgeRefusal::not_implemented("outputs").into());
    }
    let up_to = up_to
        .map(|offset| checked_up_to(offset, &token))
        .transpose()?;
    Ok(SettleRequest { token, up_to })
}

/// Outside the response there is nothing to settle up to.
fn checked_up_to(offset: i64, token: &AckToken) -> Result<Offset, FieldViolation> {
    let (first, last) = (token.first, token.last);
    match Offset::from_i64(offset) {
        Some(offset) if (first..=last).contains(&offset) => Ok(offset),
        Some(_) | None => {
            let limit = format!("{first} to {last}");
            let what = "must be an offset of the response";
            Err(FieldViolation::bound("up_to_offset", limit, offset, what))
        }
    }
}
