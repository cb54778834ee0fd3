//! What no delivery could get processed, as an operator sees it.

use crate::running::started;

#[test]
fn dead_letters_are_listed_counted_shown_and_followed() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.fine("group create g t");
    let empty = broker.json("dlq list");
    assert_eq!(empty["queues"].as_array().map(Vec::len), Some(0));
    assert_eq!(broker.fine("dlq list --all -o name"), "t.g.dlq\n");
    broker.feed("produce t -k :", "a:bad\nb:good\nc:worse\n");
    let script = "case $(cat) in good) exit 0;; *) echo 'expected a comma' >&2; exit 65;; esac";
    broker.exec("consume -g g --exit", script, 8);
    let listed = broker.json("dlq list -g g");
    let queue = &listed["queues"][0];
    assert_eq!(
        (&queue["name"], &queue["depth"]),
        (&"t.g.dlq".into(), &"2".into())
    );
    let stats = broker.json("dlq stats t.g --window 1h");
    assert_eq!(stats["errors"].as_array().map(Vec::len), Some(1));
    assert_eq!(stats["errors"][0]["count"], "2");
    assert_eq!(stats["queue"]["arrivalsLastHour"], "2");
    let shown = broker.json("dlq show t.g.dlq --code exit* --oldest");
    let letter = &shown["letters"][0];
    assert_eq!(letter["errorMessage"], "expected a comma");
    assert_eq!(
        (&letter["sourceTopic"], &letter["reason"]),
        (&"t".into(), &"permanent".into())
    );
    assert_eq!(broker.fine("dlq show t.g.dlq --key c -o name"), "0@1\n");
    assert_eq!(broker.json("dlq show t.g.dlq 0@1")["deliveries"], 1);
    assert_eq!(broker.fine("dlq tail t.g -e -n 1 -o name"), "0@1\n");
    assert_eq!(broker.fine("dlq tail t.g -e -o name"), "0@0\n0@1\n");
    broker.refused("dlq show t.h.dlq", 3, "[QUEUE_NOT_FOUND]");
    broker.refused("dlq show t.g.dlq 17", 2, "is no dead letter");
}

#[test]
fn dead_letters_are_replayed_discarded_exported_and_audited() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.fine("group create g t");
    broker.feed("produce t -k :", "a:bad\nb:bad\nc:worse\nd:worst\n");
    let fails = "echo \"$(cat) again\" >&2; exit 65";
    broker.exec("consume -g g --exit", fails, 8);
    let plan = broker.json("dlq replay t.g 0@0 0@1 --dry-run");
    assert_eq!(plan["matched"], "2");
    assert_eq!(broker.json("dlq list")["queues"][0]["depth"], "4");
    broker.refused("dlq replay t.g", 2, "needs consent");
    let job = broker.json("dlq replay t.g 0@0 0@1 --wait --yes --note fixed");
    assert_eq!(job["state"], "REPLAY_STATE_SUCCEEDED");
    assert_eq!(
        (&job["replayed"], &job["note"]),
        (&"2".into(), &"fixed".into())
    );
    let id = job["id"].as_str().expect("a job has an id").to_owned();
    assert_eq!(broker.json(&format!("dlq job {id}"))["matched"], "2");
    assert_eq!(broker.fine("dlq jobs t.g -o name"), format!("{id}\n"));
    broker.fine(&format!("dlq cancel {id}"));
    broker.refused(&format!("dlq pause {id}"), 4, "[JOB_ENDED]");
    broker.refused("dlq job replay-99", 3, "[JOB_NOT_FOUND]");
    let lines = broker.fine("dlq export t.g --grep worst");
    let letter: serde_json::Value = serde_json::from_str(&lines).expect("one line of JSON");
    assert_eq!(letter["errorMessage"], "worst again");
    let done = broker.json("dlq discard t.g --grep worst --yes --note lost");
    assert_eq!(done["discarded"], "1");
    assert_eq!(broker.json("dlq list")["queues"][0]["depth"], "1");
    let audit = broker.json("dlq audit t.g");
    let actions = audit["entries"].as_array().expect("a list");
    let actions: Vec<_> = actions.iter().map(|it| it["action"].as_str()).collect();
    assert_eq!(
        actions,
        [Some("DiscardDeadLetters"), Some("ReplayDeadLetters")]
    );
}
