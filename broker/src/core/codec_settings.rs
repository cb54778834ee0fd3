//! Settings as fields, the same in commands and snapshots.

use std::collections::BTreeMap;

use super::command::GroupTopic;
use super::fields::{FieldError, FieldReader, FieldWriter};
use super::retry_policy::{ErrorRule, RetryPolicy, Schedule};
use super::settings::{
    AdmissionSettings, DeadLetterSettings, GroupMode, GroupSettings, OnFailure, OnHeadDead,
    TopicSettings,
};

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
        mode,
        on_failure,
        on_head_dead,
        retry,
        dead_letter,
        visibility_timeout_ms,
        session_timeout_ms,
        in_flight_max,
        lease_total_max_ms,
        isolate_after,
        releases_max,
        retry_share_permille,
        circuit_breaker,
        retain_until_consumed,
        paused,
        admission,
    } = settings;
    out.u8(match mode {
        GroupMode::Stream => 1,
        GroupMode::Queue => 2,
    });
    out.u8(match on_failure {
        OnFailure::Overtake => 1,
        OnFailure::Hold => 2,
    });
    out.u8(match on_head_dead {
        OnHeadDead::Continue => 1,
        OnHeadDead::Park => 2,
        OnHeadDead::Halt => 3,
    });
    put_retry(out, retry);
    put_dead_letter(out, dead_letter);
    out.u64(*visibility_timeout_ms);
    out.u64(*session_timeout_ms);
    out.u32(*in_flight_max);
    out.u64(*lease_total_max_ms);
    out.u32(*isolate_after);
    out.u32(*releases_max);
    out.u32(*retry_share_permille);
    out.bool(*circuit_breaker);
    out.bool(*retain_until_consumed);
    out.bool(*paused);
    put_admission(out, admission);
}

pub(super) fn group_settings(fields: &mut FieldReader<'_>) -> Result<GroupSettings, FieldError> {
    Ok(GroupSettings {
        mode: match fields.u8()? {
            1 => GroupMode::Stream,
            2 => GroupMode::Queue,
            _ => return Err(FieldError::Value("no group has that mode")),
        },
        on_failure: match fields.u8()? {
            1 => OnFailure::Overtake,
            2 => OnFailure::Hold,
            _ => return Err(FieldError::Value("no failure holds up that")),
        },
        on_head_dead: match fields.u8()? {
            1 => OnHeadDead::Continue,
            2 => OnHeadDead::Park,
            3 => OnHeadDead::Halt,
            _ => return Err(FieldError::Value("nothing follows a dead record like that")),
        },
        retry: retry(fields)?,
        dead_letter: dead_letter(fields)?,
        visibility_timeout_ms: fields.u64()?,
        session_timeout_ms: fields.u64()?,
        in_flight_max: fields.u32()?,
        lease_total_max_ms: fields.u64()?,
        isolate_after: fields.u32()?,
        releases_max: fields.u32()?,
        retry_share_permille: fields.u32()?,
        circuit_breaker: fields.bool()?,
        retain_until_consumed: fields.bool()?,
        paused: fields.bool()?,
        admission: admission(fields)?,
    })
}

fn put_admission(out: &mut FieldWriter, settings: &AdmissionSettings) {
    let AdmissionSettings {
        depth_max,
        age_max_ms,
        bytes_max,
        resume_permille,
        observe,
    } = settings;
    out.u64(*depth_max);
    out.u64(*age_max_ms);
    out.u64(*bytes_max);
    out.u32(*resume_permille);
    out.bool(*observe);
}

fn admission(fields: &mut FieldReader<'_>) -> Result<AdmissionSettings, FieldError> {
    Ok(AdmissionSettings {
        depth_max: fields.u64()?,
        age_max_ms: fields.u64()?,
        bytes_max: fields.u64()?,
        resume_permille: fields.u32()?,
        observe: fields.bool()?,
    })
}

fn put_retry(out: &mut FieldWriter, policy: &RetryPolicy) {
    let RetryPolicy {
        deliveries_max,
        schedule,
        jitter_max_ms,
        jitter_ppm,
        age_max_ms,
        rules,
        permanent_by_default,
    } = policy;
    out.u32(*deliveries_max);
    match schedule {
        Schedule::List(delays_ms) => {
            out.u8(1);
            out.count(delays_ms.len());
            for delay_ms in delays_ms {
                out.u64(*delay_ms);
            }
        }
        Schedule::Exponential {
            base_ms,
            multiplier_permille,
            delay_max_ms,
            clamp_after_jitter,
        } => {
            out.u8(2);
            out.u64(*base_ms);
            out.u32(*multiplier_permille);
            out.u64(*delay_max_ms);
            out.bool(*clamp_after_jitter);
        }
    }
    out.u64(*jitter_max_ms);
    out.u32(*jitter_ppm);
    out.u64(*age_max_ms);
    out.count(rules.len());
    for rule in rules {
        out.text(&rule.pattern);
        out.bool(rule.permanent);
    }
    out.bool(*permanent_by_default);
}

fn retry(fields: &mut FieldReader<'_>) -> Result<RetryPolicy, FieldError> {
    Ok(RetryPolicy {
        deliveries_max: fields.u32()?,
        schedule: match fields.u8()? {
            1 => Schedule::List(fields.list(8, FieldReader::u64)?),
            2 => Schedule::Exponential {
                base_ms: fields.u64()?,
                multiplier_permille: fields.u32()?,
                delay_max_ms: fields.u64()?,
                clamp_after_jitter: fields.bool()?,
            },
            _ => return Err(FieldError::Value("no delays are made like that")),
        },
        jitter_max_ms: fields.u64()?,
        jitter_ppm: fields.u32()?,
        age_max_ms: fields.u64()?,
        rules: fields.list(5, |each| {
            Ok(ErrorRule {
                pattern: each.text()?.to_owned(),
                permanent: each.bool()?,
            })
        })?,
        permanent_by_default: fields.bool()?,
    })
}

fn put_dead_letter(out: &mut FieldWriter, settings: &DeadLetterSettings) {
    let DeadLetterSettings {
        off,
        bytes_max,
        retention_age_ms,
        drop_oldest_when_full,
        omit_error_message,
        omit_error_stack,
        replays_max,
    } = settings;
    out.bool(*off);
    out.u64(*bytes_max);
    out.u64(*retention_age_ms);
    out.bool(*drop_oldest_when_full);
    out.bool(*omit_error_message);
    out.bool(*omit_error_stack);
    out.u32(*replays_max);
}

fn dead_letter(fields: &mut FieldReader<'_>) -> Result<DeadLetterSettings, FieldError> {
    Ok(DeadLetterSettings {
        off: fields.bool()?,
        bytes_max: fields.u64()?,
        retention_age_ms: fields.u64()?,
        drop_oldest_when_full: fields.bool()?,
        omit_error_message: fields.bool()?,
        omit_error_stack: fields.bool()?,
        replays_max: fields.u32()?,
    })
}

pub(super) fn put_group_topics(out: &mut FieldWriter, topics: &[GroupTopic]) {
    out.count(topics.len());
    for topic in topics {
        out.topic(topic.topic);
        out.topic(topic.retry);
        out.topic(topic.dead_letter);
        out.count(topic.start.len());
        topic.start.iter().for_each(|start| out.offset(*start));
    }
}

pub(super) fn group_topics(fields: &mut FieldReader<'_>) -> Result<Vec<GroupTopic>, FieldError> {
    fields.list(52, |each| {
        Ok(GroupTopic {
            topic: each.topic()?,
            retry: each.topic()?,
            dead_letter: each.topic()?,
            start: each.list(8, FieldReader::offset)?,
        })
    })
}
