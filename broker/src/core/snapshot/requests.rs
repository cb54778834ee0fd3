//! Request ids.

use varvelog_store::Epoch;

use super::topics::rising;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::request::{PartAppended, Repeat};
use crate::core::request_ids::{Remembered, RequestIds};

pub(super) fn put_requests(out: &mut FieldWriter, requests: &RequestIds) {
    out.count(requests.topics().count());
    for topic in requests.topics() {
        out.topic(topic);
        out.count(requests.of_topic(topic).count());
        for (id, request) in requests.of_topic(topic) {
            out.text(id);
            put_request(out, request);
        }
    }
}

pub(super) fn requests(fields: &mut FieldReader<'_>) -> Result<RequestIds, FieldError> {
    let mut requests = RequestIds::default();
    let mut last_topic = None;
    for _ in 0..fields.count(20)? {
        let topic = fields.topic()?;
        rising(&mut last_topic, topic)?;
        let mut last_ms = 0;
        for _ in 0..fields.count(28)? {
            let id = fields.text()?;
            let request = request(fields)?;
            if !requests.restore(topic, id, request, &mut last_ms) {
                return Err(FieldError::Value("request ids are not in order"));
            }
        }
    }
    Ok(requests)
}

fn put_request(out: &mut FieldWriter, request: &Remembered) {
    out.u64(request.content_hash);
    out.u64(request.running_ms);
    out.count(request.parts.len());
    for part in &request.parts {
        out.partition(part.partition);
        out.offset(part.base_offset);
        out.u32(part.epoch.0);
        out.bool(part.duplicate);
    }
    out.count(request.repeats.len());
    for repeat in &request.repeats {
        out.u32(repeat.part);
        out.u32(repeat.number);
        out.u32(repeat.partition);
        out.offset(repeat.offset);
        out.u32(repeat.epoch.0);
    }
}

fn request(fields: &mut FieldReader<'_>) -> Result<Remembered, FieldError> {
    let content_hash = fields.u64()?;
    let running_ms = fields.u64()?;
    let parts = fields.list(33, |each| {
        Ok(PartAppended {
            partition: each.partition()?,
            base_offset: each.offset()?,
            epoch: Epoch(each.u32()?),
            duplicate: each.bool()?,
        })
    })?;
    let repeats = fields.list(24, |each| {
        Ok(Repeat {
            part: each.u32()?,
            number: each.u32()?,
            partition: each.u32()?,
            offset: each.offset()?,
            epoch: Epoch(each.u32()?),
        })
    })?;
    Ok(Remembered {
        content_hash,
        running_ms,
        parts: parts.into(),
        repeats: repeats.into(),
    })
}
