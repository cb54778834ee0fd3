//! A command of each kind that is about dead letters.

use varvelog_store::WallMs;

use super::sample::*;
use crate::core::command::{Append, Change};
use crate::core::dead_letters::{Claims, JobNumber, ReplayOrder};
use crate::core::replay_command::{Discard, JobControl, ReplayStep, StartReplay};
use crate::core::retries::RetryEntry;

pub(super) fn replay_kinds() -> [(&'static str, Change); 4] {
    let mut claims = Claims::new();
    claims.add(0, offset(3), false);
    claims.add(0, offset(9), true);
    claims.add(0, offset(12), false);
    claims.add(7, offset(0), false);
    let start = StartReplay {
        queue: topic_id(151),
        claims: claims.clone(),
        selected: 5,
        skipped: 2,
        order: ReplayOrder {
            request_id: "deploy-42".into(),
            content_hash: 77,
            target: Some((topic_id(2), "bills".into())),
            millis_per_second: 50_000,
            canary: 3,
            keep_on_refail: true,
            note: "fixed in 1.2".into(),
            detail: "error_codes=E42".into(),
        },
    };
    let entry = RetryEntry {
        due: WallMs(1_700_000_001_000),
        origin: offset(10),
        failures: 0,
        suspect: false,
    };
    let step = ReplayStep {
        job: JobNumber(3),
        partition: at(151, 4),
        done: vec![offset(3)],
        failed: vec![offset(9)],
        error: "damaged".into(),
        append: Append {
            request: None,
            parts: vec![part(at(101, 4), 1)],
        },
        retries: vec![(0, vec![entry])],
    };
    let discard = Discard {
        queue: topic_id(151),
        claims,
        selected: 5,
        note: "of no use".into(),
        detail: "all".into(),
    };
    let control = Change::ControlReplay {
        job: JobNumber(3),
        control: JobControl::Cancel,
    };
    [
        ("start replay", Change::StartReplay(start)),
        ("replay", Change::Replay(step)),
        ("control replay", control),
        ("discard", Change::Discard(discard)),
    ]
}
