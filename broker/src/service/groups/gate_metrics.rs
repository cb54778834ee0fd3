//! Whether groups let producers in, and how many workers they could use, on the page of metrics.

use super::advice::Load;
use super::metrics::{Measured, with};
use crate::core::admission::Measure;
use crate::service::context::Context;
use crate::service::metrics::{Family, Kind};

/// Gates of the groups that watch something, and the advice to all.
pub(super) fn gates(context: &Context, measured: &[Measured]) -> [Family; 2] {
    let mut closed = Family::new(
        Kind::Gauge,
        "varvelog_group_gate_closed",
        "1 for what keeps producers out, or would if the group did not only observe; else 0",
    );
    let mut advice = Family::new(
        Kind::Gauge,
        "varvelog_group_scale_advice",
        "Workers to add, or to take away",
    );
    for one in measured {
        let group = &one.group;
        if let Some(admission) = &group.admission {
            for measure in Measure::ALL {
                let is_closed = admission.closed_by == Some(measure);
                let labels = with(&one.labels(), "reason", measure.reason().to_owned());
                closed.add(labels, u64::from(is_closed));
            }
        }
        let oldest = one.ages.iter().filter_map(|ages| ages.oldest).max();
        let load = Load::of(group, oldest.unwrap_or_default());
        let advised = (load, &group.settings.admission);
        let now = context.services.clock.mono();
        let workers = context.advices.of(&group.name, advised, now);
        advice.add_real(one.labels(), f64::from(workers));
    }
    [closed, advice]
}
