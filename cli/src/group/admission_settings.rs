//! How far behind a group may be before producers are refused, as options.

use std::time::Duration;

use clap::Args;
use varvelog_proto::v1;

use super::settings::{Given, to_duration};
use crate::failure::Failure;
use crate::parse::{self, Switch};

/// Options for backpressure.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Producers are refused while the group is too far behind")]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named as their options"
)]
pub(super) struct AdmissionArgs {
    /// So many records of a topic not done, or none [default: none]
    #[arg(long, value_parser = parse::count_or_none, value_name = "RECORDS|none")]
    admit_max_depth: Option<i64>,
    /// The oldest of them so old, or none [default: none]
    #[arg(long, value_parser = parse::duration_or_none, value_name = "DURATION|none")]
    admit_max_age: Option<Duration>,
    /// So many bytes of them, or none [default: none]
    #[arg(long, value_parser = parse::bytes_or_none, value_name = "SIZE|none")]
    admit_max_bytes: Option<i64>,
    /// They are let in again at this share of each limit, up to 1 [default: 0.8]
    #[arg(long, value_parser = parse::positive, value_name = "SHARE")]
    admit_resume: Option<f64>,
    /// Count what would have been refused, and refuse nothing [default: off]
    #[arg(long, value_enum, require_equals = true, num_args = 0..=1,
        default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    admit_observe: Option<Switch>,
}

impl AdmissionArgs {
    pub(super) fn put(&self, given: &mut Given) -> Result<(), Failure> {
        let mut admission = v1::Admission::default();
        let before = given.paths.len();
        if let Some(records) = self.admit_max_depth {
            given.name("admission.max_depth");
            admission.max_depth = records;
        }
        if let Some(age) = self.admit_max_age {
            given.name("admission.max_age");
            let limited = (!age.is_zero()).then(|| to_duration("--admit-max-age", age));
            admission.max_age = limited.transpose()?;
        }
        if let Some(bytes) = self.admit_max_bytes {
            given.name("admission.max_bytes");
            admission.max_bytes = bytes;
        }
        if let Some(ratio) = self.admit_resume {
            given.name("admission.resume_ratio");
            admission.resume_ratio = ratio;
        }
        if let Some(switch) = self.admit_observe {
            given.name("admission.observe");
            admission.observe = switch.is_on();
        }
        if given.paths.len() > before {
            given.config.admission = Some(admission);
        }
        Ok(())
    }
}
