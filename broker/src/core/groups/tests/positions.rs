//! Positions set by hand beside what is out.

use super::rig::{Rig, at, join};
use super::settlement::{already, done};
use crate::core::command::Change;
use crate::core::request::Settled;

#[test]
fn a_position_committed_beyond_what_is_out_ends_the_leases_below_it() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let first = rig.receive(stream, 2).token;
    let second = rig.receive(stream, 4).token;
    let partition = rig.partition("orders", 0);
    // 6 to 9 are granted and not handed on.
    let pending = rig.grant(stream);
    assert_eq!((pending.from, pending.until), (at(6), at(10)));
    rig.commit("g", (partition, 4), false);
    assert_eq!(rig.in_flight("g"), 2 + 4);
    assert_eq!(rig.ack(&first), already(2));
    let both = Settled {
        done: 2,
        already_settled: 2,
        ..Settled::default()
    };
    assert_eq!(rig.ack(&second), both);
    rig.commit("g", (partition, 8), false);
    assert_eq!(rig.in_flight("g"), 2);
    let token = rig.hand_on(stream, pending, 4).token;
    assert_eq!(
        rig.ack(&token),
        Settled {
            done: 2,
            already_settled: 2,
            ..Settled::default()
        }
    );
    assert_eq!(rig.in_flight("g"), 0);
    rig.append("orders", 0, 1);
    assert_eq!(rig.receive(stream, 9).offsets(), [10]);
}

#[test]
fn a_position_committed_back_makes_the_records_behind_it_due_again() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 6);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let first = rig.receive(stream, 4).token;
    rig.ack(&first);
    let second = rig.receive(stream, 2).token;
    rig.commit("g", (rig.partition("orders", 0), 1), true);
    let again = rig.receive(stream, 9);
    assert_eq!((again.offsets(), again.token.attempt), (vec![1, 2, 3], 1));
    assert_eq!(rig.ack(&second), done(2));
    assert_eq!(rig.ack(&again.token), done(3));
    assert_eq!(rig.low("g"), 6);
}

#[test]
fn retention_ends_the_leases_of_what_it_takes() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 4).token;
    let rest = rig.receive(stream, 2).token;
    let partition = rig.partition("orders", 0);
    rig.apply(Change::MoveLogStart {
        partition,
        start: at(5),
    })
    .unwrap();
    assert_eq!(rig.ack(&token), already(4));
    assert_eq!(
        rig.ack(&rest),
        Settled {
            done: 1,
            already_settled: 1,
            ..Settled::default()
        }
    );
    assert_eq!(rig.receive(stream, 9).offsets(), [6, 7, 8, 9]);
}
