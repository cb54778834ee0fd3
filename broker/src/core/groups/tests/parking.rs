//! Keys whose records follow one that is dead into the dead-letter topic.

use super::holding::keyed;
use super::retrying::{dead, worker};
use super::rig::{Rig, at, group, join};
use super::rig_members::failed;
use super::settlement::done;
use crate::core::command::Change;
use crate::core::failure::DeadReason;
use crate::core::groups::Durable;
use crate::core::request::{FailureAction, OperatorAction, StreamKey};
use crate::core::settings::{GroupMode, OnHeadDead};

/// A group that parks; the record at each offset has the key of that place, none where it is 0.
fn parking(mode: GroupMode, keys: &[u64]) -> Rig {
    let mut rig = keyed(keys);
    rig.update_group("g", |settings| {
        settings.mode = mode;
        settings.on_head_dead = OnHeadDead::Park;
    });
    rig
}

/// The first record that a member is given is dead.
fn head_dies(rig: &mut Rig, stream: StreamKey) {
    let head = rig.receive(stream, 1);
    let settled = rig.fail(&head.token, vec![failed(0, FailureAction::DeadLetter)]);
    assert_eq!(settled, dead(1));
}

/// The log of the dead-letter partition starts there now.
fn discard(rig: &mut Rig, start: u64) {
    let place = rig.state.place(&group("g"), rig.partition("orders", 0));
    let partition = place.unwrap().dead_letter;
    rig.apply(Change::MoveLogStart {
        partition,
        start: at(start),
    })
    .unwrap();
    rig.settle_down();
}

/// Everything that a member is given now, acknowledged one by one.
fn take_all(rig: &mut Rig, stream: StreamKey) -> Vec<u64> {
    let mut taken = Vec::new();
    while !rig.is_silent(stream) {
        let delivery = rig.receive(stream, 1);
        taken.extend(delivery.offsets());
        rig.ack(&delivery.token);
    }
    taken
}

const PERMANENT: (u64, DeadReason, u32) = (0, DeadReason::Permanent, 1);

fn parked(origin: u64) -> (u64, DeadReason, u32) {
    (origin, DeadReason::ParkedKey, 0)
}

#[test]
fn later_records_of_a_dead_records_key_follow_it_in_order_and_other_keys_go_on() {
    for mode in [GroupMode::Queue, GroupMode::Stream] {
        let mut rig = parking(mode, &[1, 1, 2, 1, 0, 1, 2]);
        rig.append("orders", 0, 5);
        let (stream, _) = rig.member(worker());
        head_dies(&mut rig, stream);
        rig.append("orders", 0, 2);
        assert_eq!(take_all(&mut rig, stream), [2, 4, 6], "{mode:?}");
        let letters = [PERMANENT, parked(1), parked(3), parked(5)];
        assert_eq!(rig.dead(), letters, "{mode:?}");
        assert_eq!(rig.low("g"), 7, "{mode:?}");
    }
}

#[test]
fn a_key_is_given_out_again_when_all_its_dead_letters_are_gone() {
    for mode in [GroupMode::Queue, GroupMode::Stream] {
        let mut rig = parking(mode, &[1, 1, 1, 1, 1]);
        rig.append("orders", 0, 2);
        let (stream, _) = rig.member(worker());
        head_dies(&mut rig, stream);
        assert_eq!(rig.dead(), [PERMANENT, parked(1)]);
        discard(&mut rig, 1);
        rig.append("orders", 0, 1);
        assert!(rig.is_silent(stream), "{mode:?}: one of them is there");
        assert_eq!(rig.dead().len(), 3);
        discard(&mut rig, 3);
        rig.append("orders", 0, 2);
        assert_eq!(take_all(&mut rig, stream), [3, 4], "{mode:?}");
    }
}

#[test]
fn what_is_parked_stays_so_after_a_restart_and_while_nobody_is_there() {
    for mode in [GroupMode::Queue, GroupMode::Stream] {
        let mut rig = parking(mode, &[1, 2, 1, 2]);
        rig.append("orders", 0, 2);
        let (stream, _) = rig.member(worker());
        head_dies(&mut rig, stream);
        rig.restart();
        rig.append("orders", 0, 2);
        let (stream, _) = rig.member(worker());
        assert_eq!(take_all(&mut rig, stream), [1, 3], "{mode:?}");
        assert_eq!(rig.dead(), [PERMANENT, parked(2)], "{mode:?}");
    }
}

#[test]
fn a_record_without_a_key_parks_nothing() {
    let mut rig = parking(GroupMode::Queue, &[0, 0, 1]);
    rig.append("orders", 0, 3);
    let (stream, _) = rig.member(worker());
    head_dies(&mut rig, stream);
    assert_eq!(take_all(&mut rig, stream), [1, 2]);
    assert_eq!(rig.dead(), [PERMANENT]);
}

#[test]
fn a_record_that_an_operator_takes_out_parks_nothing() {
    let mut rig = parking(GroupMode::Queue, &[1, 1]);
    rig.append("orders", 0, 2);
    rig.operate(&[0], OperatorAction::DeadLetter);
    let (stream, _) = rig.member(worker());
    assert_eq!(take_all(&mut rig, stream), [1]);
}

#[test]
fn other_settings_or_a_reset_give_the_keys_out_again() {
    for (mode, resets) in [
        (GroupMode::Queue, false),
        (GroupMode::Queue, true),
        (GroupMode::Stream, false),
        (GroupMode::Stream, true),
    ] {
        let mut rig = parking(mode, &[1, 1, 1]);
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(worker());
        head_dies(&mut rig, stream);
        if resets {
            let (group, partition) = (group("g"), rig.partition("orders", 0));
            let positions = vec![(partition, at(1))];
            rig.apply(Change::ResetOffsets { group, positions })
                .unwrap();
        } else {
            rig.update_group("g", |it| it.on_head_dead = OnHeadDead::Continue);
        }
        rig.append("orders", 0, 2);
        assert_eq!(take_all(&mut rig, stream), [1, 2], "{mode:?} {resets}");
        assert_eq!(rig.dead(), [PERMANENT]);
    }
}

#[test]
fn a_group_that_begins_to_park_while_it_works_parks_from_then_on() {
    for mode in [GroupMode::Queue, GroupMode::Stream] {
        let mut rig = parking(mode, &[1, 1, 2]);
        rig.update_group("g", |it| it.on_head_dead = OnHeadDead::Continue);
        rig.append("orders", 0, 3);
        let (stream, _) = rig.member(worker());
        let head = rig.receive(stream, 1);
        rig.update_group("g", |it| it.on_head_dead = OnHeadDead::Park);
        rig.fail(&head.token, vec![failed(0, FailureAction::DeadLetter)]);
        assert_eq!(take_all(&mut rig, stream), [2], "{mode:?}");
        assert_eq!(rig.dead(), [PERMANENT, parked(1)], "{mode:?}");
    }
}

#[test]
fn a_record_of_a_parked_key_that_somebody_has_is_parked_when_it_comes_back() {
    let mut rig = parking(GroupMode::Queue, &[1, 1, 1]);
    rig.append("orders", 0, 3);
    let (stream, _) = rig.member(worker());
    let head = rig.receive(stream, 1);
    assert_eq!(rig.ack(&head.token), done(1));
    let second = rig.receive(stream, 1);
    assert_eq!(second.offsets(), [1]);
    rig.fail(&second.token, vec![failed(1, FailureAction::DeadLetter)]);
    let letters = [(1, DeadReason::Permanent, 1), parked(2)];
    assert_eq!(rig.dead(), letters);
    let (other, _) = rig.member(join("g", &[]));
    assert!(rig.is_silent(other) && rig.is_silent(stream));
}

#[test]
fn what_follows_is_as_much_as_there_is_however_many_commands_it_takes() {
    let mut rig = parking(GroupMode::Queue, &vec![1; 3_500]);
    rig.copies_max = 300;
    rig.append("orders", 0, 3_500);
    let (stream, _) = rig.member(worker());
    head_dies(&mut rig, stream);
    assert_eq!((rig.dead().len(), rig.low("g")), (3_500, 3_500));
    let origins: Vec<u64> = rig.dead().into_iter().map(|letter| letter.0).collect();
    assert!(origins.is_sorted());
}

#[test]
fn without_room_for_dead_letters_a_parked_key_waits_in_place_until_there_is_room_or_it_is_free() {
    for (mode, has_room) in [
        (GroupMode::Queue, false),
        (GroupMode::Queue, true),
        (GroupMode::Stream, false),
        (GroupMode::Stream, true),
    ] {
        let mut rig = parking(mode, &[1, 2, 1, 1]);
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(worker());
        head_dies(&mut rig, stream);
        rig.update_group("g", |it| it.dead_letter.bytes_max = 0);
        rig.append("orders", 0, 3);
        assert_eq!(take_all(&mut rig, stream), [1], "{mode:?}");
        assert_eq!(rig.dead(), [PERMANENT], "{mode:?}");
        if has_room {
            rig.update_group("g", |it| it.dead_letter.bytes_max = 1);
            assert_eq!(rig.dead(), [PERMANENT, parked(2), parked(3)], "{mode:?}");
        } else {
            discard(&mut rig, 1);
            assert_eq!(take_all(&mut rig, stream), [2, 3], "{mode:?}");
            assert_eq!(rig.dead(), [PERMANENT], "{mode:?}");
        }
        assert_eq!(rig.low("g"), 4, "{mode:?}");
    }
}

#[test]
fn what_a_program_commits_back_is_parked_as_well() {
    for restarts in [false, true] {
        let mut rig = parking(GroupMode::Stream, &[2, 1, 1]);
        rig.append("orders", 0, 3);
        let (stream, _) = rig.member(worker());
        let head = rig.receive(stream, 1);
        rig.ack(&head.token);
        let second = rig.receive(stream, 1);
        rig.fail(&second.token, vec![failed(1, FailureAction::DeadLetter)]);
        assert_eq!(rig.low("g"), 3);
        if restarts {
            rig.restart();
        }
        rig.commit("g", (rig.partition("orders", 0), 0), true);
        let stream = if restarts {
            rig.member(worker()).0
        } else {
            stream
        };
        assert_eq!(take_all(&mut rig, stream), [0]);
        assert_eq!(rig.dead().len(), 4, "each of the key once more");
        assert_eq!(rig.low("g"), 3);
    }
}
