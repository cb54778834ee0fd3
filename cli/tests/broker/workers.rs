//! Records handled by commands: what their exit codes make of them, and what an operator does.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::running::{Broker, Follower, started, stderr};

fn retries(broker: &Broker, group: &str) -> Vec<Value> {
    let listed = broker.json(&format!("retry list -g {group}"));
    let list = listed.get("retries").and_then(Value::as_array);
    list.expect("a list").clone()
}

#[test]
fn a_command_is_run_for_each_record_in_order() {
    let (folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t -k :", "a:1\nb:2\nc:3\n");
    let seen = folder.path().join("seen");
    let script = format!(
        "printf '%s=%s@%s\\n' \"$VARVELOG_KEY\" \"$(cat)\" \"$VARVELOG_ATTEMPT\" >> {}",
        seen.display()
    );
    broker.exec("consume t -g workers --exit", &script, 0);
    let seen = std::fs::read_to_string(seen).expect("a file");
    assert_eq!(seen, "a=1@1\nb=2@1\nc=3@1\n");
    assert_eq!(broker.json("group describe workers")["totalLag"], "0");
}

#[test]
fn the_exit_code_of_a_command_decides_in_both_modes() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", "good\nbad\nbusy\nbroken\ngood\n");
    let script = "case $(cat) in good) exit 0;; bad) echo 'expected a comma' >&2; exit 65;; \
                  busy) echo 'come back later' >&2; exit 75;; *) exit 4;; esac";
    for mode in ["stream", "queue"] {
        let line = format!("group create {mode} t --mode {mode} --delay 1h --rule");
        let mut create = broker.command(&line);
        let made = create.arg("exit 4=permanent").output().expect("it ends");
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        let output = broker.exec(&format!("consume -g {mode} --exit"), script, 8);
        assert!(
            stderr(&output).contains("error: 3 records failed"),
            "{}",
            stderr(&output)
        );
        let group = broker.json(&format!("group describe {mode}"));
        assert_eq!(group["totalLag"], "0", "{mode}");
        assert_eq!(group["deadLetters"], "2", "{mode}");
        assert_eq!(group["retriesScheduled"], "1", "{mode}");
        let waiting = retries(&broker, mode);
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        assert_eq!(waiting[0]["offset"], "2");
        assert_eq!(waiting[0]["attempt"], 2);
        assert_eq!(waiting[0]["errorCode"], "exit 75");
        assert_eq!(waiting[0]["errorMessage"], "come back later");
        let dead = broker.fine(&format!("tail t.{mode}.dlq --from earliest -e -f %v\\n"));
        assert_eq!(dead, "bad\nbroken\n");
    }
}

#[test]
fn waiting_records_are_hurried_all_or_one() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", "a\nb\nc\n");
    broker.fine("group create slow t --delay 1h");
    broker.exec("consume -g slow --exit", "exit 75", 8);
    let names = broker.fine("retry list -g slow -o name");
    let mut names: Vec<_> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["t/0@0", "t/0@1", "t/0@2"]);
    assert_eq!(broker.json("retry now -g slow --dry-run")["matched"], "3");
    assert_eq!(broker.json("retry now -g slow t/0@1")["matched"], "1");
    broker.exec("consume -g slow --limit 1", "test $(cat) = b", 0);
    assert_eq!(broker.json("retry now -g slow")["matched"], "2");
    let script = "test $VARVELOG_ATTEMPT = 2";
    broker.exec("consume -g slow --limit 2", script, 0);
    assert!(retries(&broker, "slow").is_empty());
    broker.refused("retry list -g slwo", 3, "[GROUP_NOT_FOUND]");
    broker.refused("retry now -g slow t/0", 2, "is no record");
}

#[test]
fn an_operator_settles_records_by_hand() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", "a\nb\nc\nd\n");
    broker.fine("group create g t --delay 1h");
    broker.refused("group settle -g g t/0@0", 2, "--skip");
    broker.refused("group settle -g g --skip t/0@0", 2, "--yes");
    let plan = broker.json("group settle -g g --skip --dry-run t/0@0 t/0@1");
    assert_eq!(plan["settled"], "2");
    assert_eq!(broker.json("group describe g")["totalLag"], "4");
    let skipped = broker.json("group settle -g g --skip --yes t/0@0");
    assert_eq!(skipped["settled"], "1");
    let dead = broker.json("group settle -g g --dead-letter --yes --note broken t/0@1");
    assert_eq!(dead["settled"], "1");
    broker.exec("consume -g g --limit 1", "exit 75", 8);
    let retried = broker.json("group settle -g g --retry --yes t/0@2");
    assert_eq!(retried["settled"], "1");
    let script = "test $VARVELOG_ATTEMPT = 1";
    broker.exec("consume -g g --limit 2", script, 0);
    let group = broker.json("group describe g");
    assert_eq!(
        (&group["totalLag"], &group["deadLetters"]),
        (&"0".into(), &"1".into())
    );
    let again = broker.json("group settle -g g --skip --yes t/0@0");
    assert_eq!(again["settled"], "0", "what is done is passed over");
}

#[test]
fn commands_run_side_by_side() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", &"x\n".repeat(8));
    broker.fine("group create g t --mode queue");
    let begin = Instant::now();
    broker.exec("consume -g g --exit --concurrency 8", "sleep 1", 0);
    let took = begin.elapsed();
    assert!(
        took < Duration::from_secs(7),
        "8 commands of 1 s took {took:?}"
    );
}

#[test]
fn ctrl_c_lets_the_command_finish_and_gives_back_the_rest_uncounted() {
    let (folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t", "a\nb\nc\n");
    let mut command = broker.command("consume t -g g --exec");
    let done = folder.path().join("done");
    command.arg(format!("echo begun; sleep 1; cat >> {}", done.display()));
    let mut consume = Follower::spawn(command);
    assert_eq!(consume.line(), "begun\n");
    assert_eq!(consume.interrupt(), Some(130));
    assert_eq!(std::fs::read_to_string(done).expect("a file"), "a");
    assert_eq!(broker.json("group describe g")["totalLag"], "2");
    broker.exec("consume -g g --exit", "test $VARVELOG_ATTEMPT = 1", 0);
}

#[test]
fn a_command_that_cannot_settle_is_refused() {
    let (_folder, broker) = started();
    broker.refused("consume t -g g --exec true --ack none", 2, "--ack none");
    broker.refused("consume t -g g --concurrency 2", 2, "--exec");
}
