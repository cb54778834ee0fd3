//! The one table from errors to gRPC status and details. Unary calls and streams, whole calls and
//! answers in place ([`varvelog_proto::v1::StreamError`]) all read it.

mod explanation;
mod failure;
mod reason;
mod table;

#[cfg(test)]
mod core_failures;
#[cfg(test)]
mod tests;

pub use explanation::{DOMAIN, Explanation, RETRY_PUSHBACK};
pub use failure::{
    CallFailure, EdgeRefusal, FieldViolation, LookupRefusal, ReadRefusal, RecordRefusal,
};
pub use reason::Reason;
pub(super) use table::backpressure;
