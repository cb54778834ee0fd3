//! Gates against a count of every record, whatever happens.

use proptest::prelude::*;

use super::admission_site::{Batch, Site};
use super::sample::*;
use crate::core::admission::{Behind, Gate};
use crate::core::command::Change;
use crate::core::settings::AdmissionSettings;

#[derive(Debug, Clone)]
enum Step {
    Offer(u32, u32),
    Settle(u32, u64, u64),
    Commit(u32, u64),
    Reset(u32, u64),
    Purge(u32, u64),
    Pass(u64),
    Partition,
    Restart,
}

fn steps() -> impl Strategy<Value = Step> {
    let number = || 0..2_u32;
    prop_oneof![
        8 => (number(), 1..6_u32).prop_map(|(at, count)| Step::Offer(at, count)),
        8 => (number(), 0..40_u64, 0..6_u64).prop_map(|(at, from, n)| Step::Settle(at, from, n)),
        1 => (number(), 0..40_u64).prop_map(|(at, to)| Step::Commit(at, to)),
        1 => (number(), 0..40_u64).prop_map(|(at, to)| Step::Reset(at, to)),
        1 => (number(), 0..40_u64).prop_map(|(at, to)| Step::Purge(at, to)),
        4 => (0..4_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Partition),
        1 => Just(Step::Restart),
    ]
}

impl Site {
    /// By looking at every record.
    fn counted(&self) -> Behind {
        let mut behind = Behind::default();
        let topic = self.bench.state.topics.by_id(topic_id(1)).unwrap();
        for partition in topic.partition_ids() {
            let progress = self.bench.progress("email", partition);
            let (mut span, mut open) = ((0_u64, 0_u64), 0_u64);
            for it in self.logs.0.iter().filter(|it| it.partition == partition) {
                for at in (it.first.get()..it.end.get()).map(offset) {
                    if at >= progress.low() {
                        span = (span.0 + 1, span.1 + 100);
                    }
                    if !progress.is_done(at) {
                        open += 1;
                        let age = u64::try_from(self.bench.wall().0 - it.time.0).unwrap();
                        behind.age_ms = behind.age_ms.max(age);
                    }
                }
            }
            behind.records += open;
            let share: u64 = span.1 * open;
            behind.bytes += share.checked_div(span.0).unwrap_or(0);
        }
        behind
    }

    fn step(&mut self, step: &Step) -> Option<bool> {
        let end = |site: &Self, number| {
            let partition = site.bench.state.topics.partition(at(1, number)).unwrap();
            (partition.start().get(), partition.next().get())
        };
        match step {
            Step::Offer(number, count) => {
                return Some(self.offer(at(1, *number), *count).is_ok());
            }
            Step::Settle(number, from, count) => {
                let (start, next) = end(self, *number);
                let from = (*from).max(start);
                if from < next {
                    self.settle(at(1, *number), from, (from + count).min(next - 1));
                }
            }
            Step::Commit(number, to) => {
                let (start, next) = end(self, *number);
                self.must(commit(
                    "email",
                    &[(at(1, *number), (*to).clamp(start, next))],
                    true,
                ));
            }
            Step::Reset(number, to) => self.must(reset("email", &[(at(1, *number), *to)])),
            Step::Purge(number, to) => {
                let (start, next) = end(self, *number);
                let to = (*to).clamp(start, next);
                self.must(move_log_start(at(1, *number), to));
                let gone = |it: &Batch| it.partition == at(1, *number) && it.end <= offset(to);
                self.logs.0.retain(|it| !gone(it));
            }
            Step::Pass(ms) => self.pass(*ms),
            Step::Partition => {
                let topic = self.bench.state.topics.by_id(topic_id(1)).unwrap();
                let total = topic.partition_count() + 1;
                let topic = topic_id(1);
                self.must(Change::AddPartitions { topic, total });
            }
            Step::Restart => self.restart(),
        }
        None
    }
}

proptest! {
    /// The gate is that of the values, counted record by record after each step.
    #[test]
    fn whatever_happens_a_gate_is_what_the_records_say(
        limits in (0..30_u64, 0..9_000_u64, 0..3_000_u64, 1..=1_000_u32),
        steps in prop::collection::vec(steps(), 1..60),
    ) {
        let (depth_max, age_max_ms, bytes_max, resume_permille) = limits;
        let settings = AdmissionSettings {
            depth_max,
            age_max_ms,
            bytes_max,
            resume_permille,
            observe: false,
        };
        let mut site = Site::watched(settings);
        let mut gate = Gate::default();
        for step in &steps {
            let let_in = site.step(step);
            if matches!(step, Step::Restart) {
                gate = Gate::default();
            }
            if let Some(let_in) = let_in {
                let was_closed = gate.is_closed();
                prop_assert!(!(was_closed && let_in), "let in through a closed gate");
            }
            let counted = site.counted();
            let closed = gate.look(&settings, &counted).is_some();
            prop_assert_eq!(site.is_closed(), closed, "{:?} after {:?}", counted, step);
            if let Some(let_in) = let_in {
                prop_assert!(let_in || closed, "refused at an open gate");
            }
        }
    }
}
