//! Limits of producers: read, shown, and how a group's gates stand.

use std::time::Duration;

use varvelog_proto::v1;

use super::numbers::{fraction, share};
use super::settings::duration;
use crate::core::admission::AdmissionView;
use crate::core::settings::AdmissionSettings;
use crate::service::checks;
use crate::service::status::{CallFailure, FieldViolation, backpressure};

/// Up to the longest age that a record is kept for.
const AGE_MAX: (Duration, Duration) = (Duration::ZERO, super::settings::RETENTION_AGE.1);
const PERMILLE: u32 = 1_000;

/// The limits that a config asks for.
pub(super) fn read(config: Option<&v1::Admission>) -> Result<AdmissionSettings, CallFailure> {
    let default = AdmissionSettings::default();
    let Some(config) = config else {
        return Ok(default);
    };
    let age = config.max_age.as_ref();
    let age = checks::duration_ms("config.admission.max_age", age, AGE_MAX)?;
    let is_instant = config.max_age.is_some_and(|age| age.nanos != 0);
    if age == Some(0) && is_instant {
        let what = "must be at least 1 ms, or 0 for no limit";
        let field = "config.admission.max_age";
        return Err(FieldViolation::bound(field, "1ms", "less", what).into());
    }
    Ok(AdmissionSettings {
        depth_max: checks::not_negative("config.admission.max_depth", config.max_depth)?,
        age_max_ms: age.unwrap_or(0),
        bytes_max: checks::not_negative("config.admission.max_bytes", config.max_bytes)?,
        resume_permille: resume(config.resume_ratio, default.resume_permille)?,
        observe: config.observe,
    })
}

fn resume(ratio: f64, default_permille: u32) -> Result<u32, FieldViolation> {
    const FIELD: &str = "config.admission.resume_ratio";
    if ratio == 0.0 {
        return Ok(default_permille);
    }
    match fraction(FIELD, ratio, PERMILLE)? {
        permille @ 1..=PERMILLE if ratio <= 1.0 => Ok(permille),
        _ => {
            let least = share(1, PERMILLE);
            let limit = format!("{least} to 1");
            let what = format!(
                "must be {limit}, or 0 for {}",
                share(default_permille, PERMILLE)
            );
            Err(FieldViolation::bound(FIELD, limit, ratio, what))
        }
    }
}

/// As set; nothing where nothing was.
pub(super) fn shown(settings: &AdmissionSettings) -> Option<v1::Admission> {
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    (*settings != AdmissionSettings::default()).then(|| v1::Admission {
        max_depth: count(settings.depth_max),
        max_age: (settings.age_max_ms > 0).then(|| duration(settings.age_max_ms)),
        max_bytes: count(settings.bytes_max),
        resume_ratio: share(settings.resume_permille, PERMILLE),
        observe: settings.observe,
    })
}

/// How the gates of a group stand.
pub(super) fn state(view: &AdmissionView) -> v1::AdmissionState {
    let reason = view.closed_by.map(backpressure);
    v1::AdmissionState {
        closed: view.closed_by.is_some(),
        reason: reason.map_or_else(String::new, |reason| reason.as_str().to_owned()),
        refused: i64::try_from(view.turned_away).unwrap_or(i64::MAX),
        retry_after: view
            .retry_after
            .map(|after| after.try_into().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> v1::Admission {
        v1::Admission {
            max_depth: 1_000,
            max_age: Some(duration(90_000)),
            max_bytes: 1 << 20,
            resume_ratio: 0.5,
            observe: true,
        }
    }

    #[test]
    fn limits_are_shown_as_they_were_set() {
        let read_back = shown(&read(Some(&config())).unwrap());
        assert_eq!(read_back, Some(config()));
        assert_eq!(shown(&read(None).unwrap()), None);
        let empty = v1::Admission::default();
        assert_eq!(read(Some(&empty)).unwrap(), AdmissionSettings::default());
    }

    #[test]
    fn a_measure_has_the_reason_of_the_api() {
        use crate::core::admission::Measure;
        for measure in Measure::ALL {
            assert_eq!(backpressure(measure).as_str(), measure.reason());
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        let field = |change: fn(&mut v1::Admission)| {
            let mut config = config();
            change(&mut config);
            let refused = read(Some(&config)).unwrap_err();
            let told = crate::service::status::Explanation::from(&refused);
            told.field.unwrap().0
        };
        let named = |name: &str| format!("config.admission.{name}");
        assert_eq!(field(|it| it.max_depth = -1), named("max_depth"));
        assert_eq!(field(|it| it.max_bytes = i64::MIN), named("max_bytes"));
        let short = |nanos| prost_types::Duration { seconds: 0, nanos };
        assert_eq!(
            field(|it| it.max_age = Some(prost_types::Duration {
                seconds: -1,
                nanos: 0
            })),
            named("max_age")
        );
        let mut instant = config();
        instant.max_age = Some(short(999_999));
        assert!(read(Some(&instant)).is_err());
        for bad in [-0.1, 1.000_1, 0.000_1, f64::NAN, f64::INFINITY] {
            let mut config = config();
            config.resume_ratio = bad;
            assert!(read(Some(&config)).is_err(), "{bad}");
        }
    }
}
