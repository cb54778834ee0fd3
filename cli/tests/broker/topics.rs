//! Topics by command.

use crate::running::started;

#[test]
fn topics_are_made_shown_changed_and_deleted() {
    let (_folder, broker) = started();
    let made = broker.json("topic create flights -p 3 --retention 2d");
    assert_eq!(
        (&made["name"], &made["partitions"]),
        (&"flights".into(), &3.into())
    );
    broker.refused("topic create flights", 4, "[TOPIC_EXISTS]");
    broker.fine("topic create flights --if-not-exists");
    broker.refused("topic create bad/name", 2, "error: ");
    broker.refused("topic describe flihgts", 3, "[TOPIC_NOT_FOUND]");
    assert_eq!(broker.fine("topic list -o name"), "flights\n");
    let listed = broker.json("topic list");
    assert_eq!(listed["topics"][0]["config"]["retentionAge"], "172800s");
    let altered = broker.json("topic alter flights --retention none --label team=air");
    assert_eq!(altered["config"]["retentionAge"], "0s");
    assert_eq!(altered["config"]["labels"]["team"], "air");
    broker.fine("topic add-partitions flights --total 5 --dry-run");
    assert_eq!(broker.json("topic describe flights")["partitions"], 3);
    assert_eq!(
        broker.json("topic add-partitions flights --total 4")["partitions"],
        4
    );
    broker.refused("topic delete flights", 2, "--yes");
    broker.fine("topic delete flights --dry-run");
    broker.fine("topic delete flights --yes");
    assert_eq!(broker.fine("topic list -o name"), "");
}

#[test]
fn records_are_deleted_from_the_front() {
    let (_folder, broker) = started();
    broker.fine("topic create t -p 2");
    broker.feed("produce t -p 1", "a\nb\nc\n");
    broker.refused("topic delete-records t --before 2", 2, "--all-partitions");
    broker.refused("topic delete-records t -p 1 --before 2", 2, "--yes");
    let cut = broker.json("topic delete-records t -p 1 --before 2 --yes");
    assert_eq!(cut["partitions"][0]["earliestOffset"], "2");
    assert_eq!(broker.fine("tail t --from earliest -e -f %v"), "c");
    broker.fine("topic delete-records t --all-partitions --before latest --yes");
    assert_eq!(broker.fine("tail t --from earliest -e"), "");
}
