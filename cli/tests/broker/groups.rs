//! Groups by command.

use crate::records::flights;
use crate::running::{Follower, started};

#[test]
fn a_group_reads_everything_once_and_again_after_a_reset() {
    let (_folder, broker) = started();
    broker.fine("topic create flights -p 3");
    broker.feed("produce flights --key-field origin", &flights(300));
    let some = broker.fine("consume flights -g crew --limit 30 -f %o\\n");
    assert_eq!(some.lines().count(), 30);
    let group = broker.json("group describe crew");
    assert_eq!(group["totalLag"], "270");
    let rest = broker.fine("consume -g crew --exit -f %v\\n");
    assert_eq!(rest.lines().count(), 270);
    assert_eq!(broker.fine("consume flights -g crew --exit"), "");
    assert_eq!(broker.json("group describe crew")["totalLag"], "0");
    broker.fine("group watch crew --exit");
    broker.refused("group reset crew --to earliest", 2, "--yes");
    broker.fine("group reset crew --to earliest --dry-run");
    assert_eq!(broker.json("group describe crew")["totalLag"], "0");
    let moved = broker.json("group reset crew --to earliest --yes");
    assert_eq!(moved["changes"].as_array().expect("a list").len(), 3);
    let again = broker.fine("consume -g crew --exit --ack each -o name");
    assert_eq!(again.lines().count(), 300);
    broker.refused("group describe crwe", 3, "[GROUP_NOT_FOUND]");
    assert_eq!(broker.fine("group list -o name"), "crew\n");
    broker.fine("group delete crew --yes");
    assert_eq!(broker.fine("group list -o name"), "");
}

#[test]
fn tail_follows_until_ctrl_c_and_consume_leaves_its_group() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", "old\n");
    let mut tail = Follower::start(&broker, "tail t -f %v\\n");
    assert_eq!(tail.line(), "old\n");
    broker.feed("produce t", "new\n");
    assert_eq!(tail.line(), "new\n");
    assert_eq!(tail.interrupt(), Some(0));
    let mut consume = Follower::start(&broker, "consume t -g crew -f %v\\n");
    assert_eq!(consume.line(), "old\n");
    assert_eq!(consume.line(), "new\n");
    let members = broker.json("group describe crew")["members"]
        .as_array()
        .map(Vec::len);
    assert_eq!(members, Some(1));
    broker.refused("group delete crew --yes", 4, "[GROUP_NOT_EMPTY]");
    assert_eq!(consume.interrupt(), Some(130));
    broker.fine("group delete crew --yes");
}
