//! Why appends and calls about dead letters fail, one of each kind.

use super::{CallFailure, EdgeRefusal};
use crate::core::refusal::{AppendRefusal, ReplayRefusal};

pub(super) fn replays() -> Vec<CallFailure> {
    let (id, state) = (|| String::from("replay-7"), "failed");
    vec![
        ReplayRefusal::NotFound { id: id() }.into(),
        ReplayRefusal::Ended { id: id(), state }.into(),
        ReplayRefusal::Overtaken { id: id() }.into(),
        EdgeRefusal::PlanRequired.into(),
        EdgeRefusal::PlanExpired { plan: id() }.into(),
        EdgeRefusal::WouldReorder { group: id() }.into(),
    ]
}

pub(super) fn appends() -> Vec<CallFailure> {
    let of = |refusal: AppendRefusal| CallFailure::from(refusal);
    vec![
        of(AppendRefusal::SequenceGap {
            expected: 3,
            got: 5,
        }),
        of(AppendRefusal::SequenceTooOld {
            producer: 7,
            got: 1,
        }),
        of(AppendRefusal::ProducerUnknown { producer: 7 }),
        of(AppendRefusal::ProducerFenced {
            producer: 7,
            epoch: 2,
        }),
        of(AppendRefusal::RequestIdReused { id: "r".into() }),
    ]
}
