//! Settings as fields, the same in commands and snapshots.

use std::collections::BTreeMap;

use super::fields::{FieldError, FieldReader, FieldWriter};
use super::settings::{GroupSettings, TopicSettings};

pub(super) fn put_topic_settings(out: &mut FieldWriter, settings: &TopicSettings) {
    let TopicSettings {
        retention_age_ms,
        retention_bytes,
        segment_bytes,
        record_bytes_max,
        message_id_window_ms,
        labels,
    } = settings;
    out.u64(*retention_age_ms);
    out.u64(*retention_bytes);
    out.u32(*segment_bytes);
    out.u32(*record_bytes_max);
    out.u64(*message_id_window_ms);
    out.count(labels.len());
    for (name, value) in labels {
        out.text(name);
        out.text(value);
    }
}

pub(super) fn topic_settings(fields: &mut FieldReader<'_>) -> Result<TopicSettings, FieldError> {
    Ok(TopicSettings {
        retention_age_ms: fields.u64()?,
        retention_bytes: fields.u64()?,
        segment_bytes: fields.u32()?,
        record_bytes_max: fields.u32()?,
        message_id_window_ms: fields.u64()?,
        labels: labels(fields)?,
    })
}

fn labels(fields: &mut FieldReader<'_>) -> Result<BTreeMap<String, String>, FieldError> {
    let listed = fields.list(8, |each| {
        Ok((each.text()?.to_owned(), each.text()?.to_owned()))
    })?;
    if !listed.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(FieldError::Value("labels do not rise by name"));
    }
    Ok(listed.into_iter().collect())
}

pub(super) fn put_group_settings(out: &mut FieldWriter, settings: &GroupSettings) {
    let GroupSettings {
        visibility_timeout_ms,
        session_timeout_ms,
        in_flight_max,
        lease_total_max_ms,
        paused,
    } = settings;
    out.u64(*visibility_timeout_ms);
    out.u64(*session_timeout_ms);
    out.u32(*in_flight_max);
    out.u64(*lease_total_max_ms);
    out.bool(*paused);
}

pub(super) fn group_settings(fields: &mut FieldReader<'_>) -> Result<GroupSettings, FieldError> {
    Ok(GroupSettings {
        visibility_timeout_ms: fields.u64()?,
        session_timeout_ms: fields.u64()?,
        in_flight_max: fields.u32()?,
        lease_total_max_ms: fields.u64()?,
        paused: fields.bool()?,
    })
}
