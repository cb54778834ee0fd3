//! Records that groups are not given before their time.

use varvelog_store::WallMs;

use super::sample::*;
use crate::core::command::AppendPart;
use crate::core::delays::DELAYS_MAX;
use crate::core::forecast::{AppendLimits, RoundForecast};
use crate::core::refusal::{QuotaRefusal, Refusal};

fn delayed(records: u32, delays: &[(u32, i64)]) -> AppendPart {
    let delays = delays.iter().map(|(delta, due)| (*delta, WallMs(*due)));
    AppendPart {
        delays: delays.collect(),
        ..part(at(1, 0), records)
    }
}

fn listed(bench: &Bench) -> Vec<(u64, i64)> {
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    let delays = partition.delayed().iter();
    delays.map(|(at, due)| (at.get(), due.0)).collect()
}

#[test]
fn delays_are_kept_by_offset_until_the_first_append_after_they_are_over() {
    let mut bench = Bench::with_topics();
    bench.pass(1_000);
    bench.must(append(vec![part(at(1, 0), 5)]));
    bench.must(append(vec![delayed(
        4,
        &[(0, 3_000), (1, 1_000), (3, 2_000)],
    )]));
    assert_eq!(
        listed(&bench),
        [(5, 3_000), (8, 2_000)],
        "one was over at once"
    );
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    let next = |from| partition.next_delayed(offset(from));
    assert_eq!(next(0), Some((offset(5), WallMs(3_000))));
    assert_eq!(next(6), Some((offset(8), WallMs(2_000))));
    assert_eq!(next(9), None);
    bench.pass(1_000);
    assert_eq!(listed(&bench).len(), 2);
    bench.must(append(vec![part(at(1, 0), 1)]));
    assert_eq!(listed(&bench), [(5, 3_000)]);
    bench.restart();
    assert_eq!(listed(&bench), [(5, 3_000)]);
}

#[test]
fn delays_go_with_the_log_start() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![delayed(4, &[(0, 9), (1, 8), (3, 7)])]));
    bench.must(move_log_start(at(1, 0), 1));
    assert_eq!(listed(&bench), [(1, 8), (3, 7)]);
    bench.must(move_log_start(at(1, 0), 4));
    assert_eq!(listed(&bench), []);
    bench.restart();
}

#[test]
fn a_round_delays_no_more_records_than_a_partition_may_have() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![delayed(2, &[(0, 5), (1, 6)])]));
    let limits = AppendLimits {
        delays: 4,
        ..AppendLimits::default()
    };
    let mut round = RoundForecast::with_limits(limits);
    let mut predict = |bench: &Bench, parts| {
        let mut append = crate::core::command::Append {
            request: None,
            parts,
        };
        bench.state.predict(&mut round, &mut append, bench.stamp)
    };
    let one = || delayed(1, &[(0, 9)]);
    assert_eq!(predict(&bench, vec![one()]), Ok(()));
    let full = Refusal::from(QuotaRefusal {
        what: "delays",
        limit: 4,
        current: 2,
    });
    assert_eq!(predict(&bench, vec![one(), one()]), Err(full));
    assert_eq!(predict(&bench, vec![part(at(1, 0), 1)]), Ok(()));
    assert_eq!(predict(&bench, vec![one()]), Ok(()));
    assert!(predict(&bench, vec![one()]).is_err());
    // Those that came due make room, though no append has dropped them yet.
    bench.pass(5);
    assert_eq!(predict(&bench, vec![one()]), Ok(()));
    assert!(predict(&bench, vec![one()]).is_err());
}

#[test]
fn apply_itself_refuses_what_is_beyond_the_hard_limit() {
    let mut bench = Bench::with_topics();
    let many = u32::try_from(DELAYS_MAX).unwrap();
    let all = (0..many).map(|delta| (delta, WallMs(i64::from(delta) + 10)));
    let all: Vec<_> = all.collect();
    let log = bench.state.topics.partition_mut(at(1, 0)).unwrap();
    log.append(many, &all, WallMs(0));
    let one = append(vec![delayed(1, &[(0, 50)])]);
    let full = Refusal::from(QuotaRefusal {
        what: "delays",
        limit: DELAYS_MAX,
        current: DELAYS_MAX,
    });
    assert_eq!(bench.state.check(&one, bench.stamp), Err(full));
    bench.pass(10);
    assert_eq!(bench.state.check(&one, bench.stamp), Ok(()));
}
