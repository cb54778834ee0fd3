//! Message ids, last in the snapshot: there may be millions, and they are encoded last, by whoever
//! writes the checkpoint.

use super::topics::rising;
use crate::core::fields::{FieldError, FieldReader};
use crate::core::message_ids::{KEPT_BYTES, MessageIds};

pub(super) fn message_ids(fields: &mut FieldReader<'_>) -> Result<MessageIds, FieldError> {
    let mut ids = MessageIds::default();
    let mut last_topic = None;
    for _ in 0..fields.count(20 + KEPT_BYTES)? {
        let topic = fields.topic()?;
        rising(&mut last_topic, topic)?;
        let count = fields.count(KEPT_BYTES)?;
        if count == 0 {
            return Err(FieldError::Value("a topic is listed for no message id"));
        }
        for _ in 0..count {
            let slot = (fields.id_hash()?, fields.u64()?, fields.offset()?);
            ids.restore(topic, slot);
        }
    }
    Ok(ids)
}
