//! What closes the gates of a group, what opens them, and what is let in meanwhile.

use std::time::Duration;

use varvelog_store::batch::ProducerStamp;

use super::admission_site::{Site, age, depth, request_of};
use super::sample::*;
use crate::core::admission::Measure;
use crate::core::backlog::Backlog;
use crate::core::command::{Change, RequestId};
use crate::core::decide::{CountLimits, Live};
use crate::core::forecast::AppendLimits;
use crate::core::pending::{Draft, Drafting, Pending};
use crate::core::settings::AdmissionSettings;

#[test]
fn t48_at_a_depth_of_1000_producers_are_refused_and_at_800_let_in_again() {
    let mut site = Site::watched(depth(1_000));
    site.offer(at(1, 0), 600).unwrap();
    site.offer(at(1, 1), 399).unwrap();
    site.offer(at(1, 0), 1).unwrap();
    let turned = site.offer(at(1, 1), 1).unwrap_err();
    assert_eq!(turned.measure, Measure::Depth);
    assert_eq!(
        (turned.limit, turned.current, turned.resume_at),
        (1_000, 1_000, 800)
    );
    assert_eq!(turned.group, group_name("email"));
    assert_eq!(turned.topic, "orders");
    let bounds = Duration::from_millis(100)..=Duration::from_secs(30);
    assert!(bounds.contains(&turned.retry_after), "{turned:?}");
    // Consumers go on.
    site.settle(at(1, 0), 0, 198);
    assert_eq!(site.offer(at(1, 0), 1).unwrap_err().current, 801);
    site.settle(at(1, 1), 0, 0);
    assert_eq!(site.offer(at(1, 0), 1), Ok(601));
    assert_eq!(site.turned_away(), 2);
}

#[test]
fn t49_a_group_that_asks_for_nothing_stops_no_producer() {
    let mut site = Site::watched(AdmissionSettings::default());
    for _ in 0..50 {
        site.offer(at(1, 0), 10_000).unwrap();
        site.pass(86_400_000);
    }
    let view = site.admission.view(&group_name("email"), site.bench.stamp);
    assert_eq!(view, None);
}

#[test]
fn t50_a_gate_that_age_closed_opens_when_the_backlog_is_skipped() {
    let mut site = Site::watched(age(60_000));
    site.offer(at(1, 0), 1).unwrap();
    site.pass(59_999);
    site.offer(at(1, 0), 1).unwrap();
    site.pass(1);
    let turned = site.offer(at(1, 0), 1).unwrap_err();
    assert_eq!((turned.measure, turned.current), (Measure::Age, 60_000));
    site.must(reset("email", &[(at(1, 0), 2)]));
    site.offer(at(1, 0), 1).unwrap();
}

#[test]
fn the_age_is_that_of_the_oldest_record_not_done_and_closes_the_gate_without_an_append() {
    let mut site = Site::watched(age(10_000));
    site.offer(at(1, 0), 1).unwrap();
    site.pass(3_000);
    site.offer(at(1, 1), 2).unwrap();
    site.pass(7_000);
    assert!(site.is_closed(), "by time alone");
    // 7 s old: let in again.
    site.settle(at(1, 0), 0, 0);
    assert!(!site.is_closed());
    site.pass(3_000);
    assert!(site.is_closed());
    site.offer(at(1, 0), 1).unwrap_err();
    // One of the two is as old as the other.
    site.settle(at(1, 1), 0, 0);
    assert!(site.is_closed());
    site.settle(at(1, 1), 1, 1);
    assert!(!site.is_closed(), "a drained group");
}

#[test]
fn bytes_fall_as_records_are_done_and_by_their_mean_ahead_of_one_that_is_stuck() {
    let limits = AdmissionSettings {
        bytes_max: 1_000,
        ..AdmissionSettings::default()
    };
    let mut site = Site::watched(limits);
    site.offer(at(1, 0), 5).unwrap();
    site.offer(at(1, 0), 5).unwrap();
    let turned = site.offer(at(1, 0), 1).unwrap_err();
    assert_eq!((turned.measure, turned.current), (Measure::Bytes, 1_000));
    site.settle(at(1, 0), 1, 1);
    assert_eq!(site.offer(at(1, 0), 1).unwrap_err().current, 900);
    site.settle(at(1, 0), 2, 2);
    site.offer(at(1, 0), 1).unwrap();
}

#[test]
fn a_gate_opens_at_a_purge_a_change_of_settings_and_the_end_of_its_group() {
    let closed = || {
        let mut site = Site::watched(depth(10));
        site.offer(at(1, 0), 10).unwrap();
        site.offer(at(1, 0), 1).unwrap_err();
        site
    };
    let mut purged = closed();
    purged.must(move_log_start(at(1, 0), 10));
    purged.offer(at(1, 0), 1).unwrap();

    let mut raised = closed();
    raised.limit("email", depth(11));
    assert!(
        raised.is_closed(),
        "above the resume level of the new limit"
    );
    raised.limit("email", depth(100));
    raised.offer(at(1, 0), 1).unwrap();

    let mut unwatched = closed();
    unwatched.limit("email", AdmissionSettings::default());
    unwatched.offer(at(1, 0), 1).unwrap();

    let mut deleted = closed();
    deleted.must(delete_group("email", true));
    deleted.offer(at(1, 0), 1).unwrap();

    let mut committed = closed();
    committed.must(commit("email", &[(at(1, 0), 10)], false));
    committed.offer(at(1, 0), 1).unwrap();
}

#[test]
fn a_restart_begins_open_and_closes_by_what_is_there() {
    let mut site = Site::watched(depth(10));
    site.offer(at(1, 0), 10).unwrap();
    site.settle(at(1, 0), 0, 0);
    assert!(site.is_closed());
    site.restart();
    assert!(
        !site.is_closed(),
        "between the levels nothing is known of before"
    );
    site.offer(at(1, 0), 1).unwrap();
    site.restart();
    assert!(site.is_closed());
    site.offer(at(1, 0), 1).unwrap_err();
}

#[test]
fn requests_that_wait_together_are_let_in_up_to_the_limit_and_one_more() {
    let mut site = Site::watched(depth(100));
    let many = (0..50).map(|_| request_of(at(1, 0), 30)).collect();
    let answers = site.offer_all(many);
    let let_in = answers.iter().take_while(|it| it.is_ok()).count();
    assert_eq!(let_in, 4);
    let refused = &answers[let_in..];
    assert!(refused.iter().all(Result::is_err));
    let end = site.bench.state.topics.partition(at(1, 0)).unwrap().next();
    assert_eq!(end, offset(120));
    // Other topics are let in in the same breath.
    let other = vec![request_of(at(1, 0), 1), request_of(at(2, 0), 9)];
    let answers = site.offer_all(other);
    assert!(answers[0].is_err() && answers[1].is_ok());
}

#[test]
fn a_refused_request_uses_up_neither_a_sequence_nor_a_request_id() {
    let mut site = Site::watched(depth(10));
    let (id, epoch) = site.bench.init("p");
    let of = |base_sequence, name: Option<&str>| {
        let mut request = request_of(at(1, 0), 10);
        request.parts[0].producer = name.is_none().then_some(ProducerStamp {
            id,
            epoch,
            base_sequence,
        });
        request.request = name.map(|name| RequestId {
            topic: topic_id(1),
            id: name.into(),
            content_hash: 9,
        });
        request
    };
    assert_eq!(site.offer_all(vec![of(0, None)]), [Ok(0)]);
    let refused = site.offer_all(vec![of(10, None), of(0, Some("r"))]);
    assert!(refused.iter().all(Result::is_err));
    // What was appended before is answered by what it gave.
    assert_eq!(site.offer_all(vec![of(0, None)]), [Ok(0)]);
    site.settle(at(1, 0), 0, 9);
    assert_eq!(site.offer_all(vec![of(10, None)]), [Ok(10)]);
    site.settle(at(1, 0), 10, 19);
    assert_eq!(site.offer_all(vec![of(0, Some("r"))]), [Ok(20)]);
    assert_eq!(site.offer_all(vec![of(0, Some("r"))]), [Ok(20)]);
}

#[test]
fn an_observed_limit_counts_and_refuses_nothing() {
    let mut site = Site::watched(AdmissionSettings {
        observe: true,
        ..depth(5)
    });
    for _ in 0..3 {
        site.offer(at(1, 0), 5).unwrap();
    }
    assert!(site.is_closed());
    assert_eq!(site.turned_away(), 2);
    let over = |site: &Site| {
        let group = group_name("email");
        site.admission
            .over_limit(&group, topic_id(1), site.bench.stamp)
    };
    assert_eq!(over(&site), None, "replays of its dead letters go on");
    site.limit("email", depth(5));
    assert_eq!(over(&site), Some(Measure::Depth));
    assert_eq!(site.turned_away(), 2, "counts outlive a change of settings");
}

#[test]
fn what_a_group_does_is_never_refused() {
    let mut site = Site::watched(depth(1));
    site.offer(at(1, 0), 3).unwrap();
    assert!(site.is_closed());
    let mut settle = settle_of(&site.bench, "email", at(1, 0));
    settle.ranges = vec![(offset(0), offset(0))];
    settle.append.parts.push(part(at(1, 1), 5));
    let id = crate::core::groups::ProposalId(1);
    let mut backlog = Backlog::default();
    backlog.push_back(Pending::Proposal(id, Change::Settle(settle)));
    let draft = Draft::gather(
        &mut backlog,
        &mut Drafting {
            state: &site.bench.state,
            stamp: site.bench.stamp,
            limits: &CountLimits::default(),
            append_limits: AppendLimits::default(),
            live: &|_| Live::default(),
            member: &|_, _, _| Ok(()),
            admission: &mut site.admission,
            dice: &mut || [0; 16],
        },
    );
    assert_eq!((draft.commands.len(), draft.refused.len()), (1, 0));
}

#[test]
fn the_delay_is_about_what_the_group_takes_down_to_the_resume_level() {
    let mut site = Site::watched(depth(1_000));
    site.offer(at(1, 0), 1_000).unwrap();
    let mut done = 0;
    for _ in 0..10 {
        site.pass(1_000);
        site.settle(at(1, 0), done, done + 9);
        done += 10;
    }
    // 100 above the level of 800 are left, at 10 in a second.
    for _ in 0..50 {
        let wait = site.offer(at(1, 0), 1).unwrap_err().retry_after;
        let bounds = Duration::from_secs(7)..=Duration::from_millis(12_500);
        assert!(bounds.contains(&wait), "{wait:?}");
    }
}
