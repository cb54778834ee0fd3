//! Starting, stopping, killing and showing a broker.

use std::process::{Command, Output, Stdio};

use crate::records::flights;
use crate::running::{Broker, Follower, PROGRAM, serve, started, stderr, stdout};

#[test]
fn a_broker_says_when_it_is_ready_and_stops_cleanly() {
    let (folder, mut broker) = started();
    let data = folder.path().display();
    assert!(broker.ready.starts_with(&format!(
        "varvelog ready grpc={} http=127.0.0.1:",
        broker.server
    )));
    assert!(
        broker.ready.ends_with(&format!(" data={data}\n")),
        "{}",
        broker.ready
    );
    let second = serve(folder.path()).output().expect("the program starts");
    assert_eq!(second.status.code(), Some(4));
    assert_eq!(broker.json("cluster health")["healthy"], true);
    let info = broker.json("cluster info");
    assert_eq!(info["syncPolicy"], "always");
    let keys = broker.fine("config show wal. --running -o name");
    assert_eq!(keys, "wal.file_bytes\nwal.sync\n");
    let folder_in_use = format!("log verify {data}");
    broker.refused(&folder_in_use, 4, "a broker is using");
    assert_eq!(broker.signal("TERM").status.code(), Some(0));
    let checked = Command::new(PROGRAM)
        .args(["log", "verify"])
        .arg(folder.path())
        .output();
    assert_eq!(checked.expect("the program starts").status.code(), Some(0));
    let mut broker = Broker::start(folder.path());
    assert_eq!(broker.json("cluster info")["clusterId"], info["clusterId"]);
    assert_eq!(broker.signal("INT").status.code(), Some(0));
}

#[test]
fn a_log_that_is_gone_is_damage_until_it_is_given_up() {
    let (folder, mut broker) = started();
    broker.fine("topic create flights");
    broker.feed("produce flights", &flights(30));
    assert_eq!(broker.signal("TERM").status.code(), Some(0));
    let mut broker = Broker::start(folder.path());
    broker.feed("produce flights", &flights(12));
    broker.signal("KILL");
    let wal = folder.path().join("wal");
    std::fs::remove_dir_all(&wal).expect("removed");
    let start = || {
        let started = serve(folder.path()).stderr(Stdio::piped()).output();
        started.expect("the program starts")
    };
    refused_start(
        &start(),
        65,
        "the write-ahead log in the folder wal holds no command",
    );
    refused_start(&start(), 65, "varvelog log repair FOLDER --from-checkpoint");
    let log = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.arg("log").args(words).arg(folder.path()).output();
        output.expect("the program starts")
    };
    assert_eq!(log(&["verify"]).status.code(), Some(65));
    let repair = log(&["repair", "--from-checkpoint"]);
    assert_eq!(repair.status.code(), Some(2), "it needs consent");
    let repair = log(&["repair", "--from-checkpoint", "--yes"]);
    assert_eq!(repair.status.code(), Some(0), "{}", stderr(&repair));
    assert!(stderr(&repair).contains("lost"), "{}", stderr(&repair));
    assert!(folder.path().join("wal.given-up-1").is_dir());
    assert_eq!(log(&["verify"]).status.code(), Some(0));
    let again = log(&["repair", "--from-checkpoint", "--yes"]);
    assert!(
        stderr(&again).contains("nothing to repair"),
        "{}",
        stderr(&again)
    );
    let broker = Broker::start(folder.path());
    broker.feed("produce flights", &flights(3));
    let all = broker.fine("tail flights --from earliest -e -o name");
    assert_eq!(all.lines().count(), 33);
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let (folder, mut broker) = started();
    broker.fine("topic create flights");
    // A member that works on keeps the stop waiting for a while.
    let mut consumer = Follower::start(&broker, "consume flights -g crew");
    broker.feed("produce flights", &flights(1));
    consumer.line();
    assert_eq!(broker.signal_times("TERM", 2).status.code(), Some(0));
    let mut broker = Broker::start(folder.path());
    assert_eq!(broker.signal("TERM").status.code(), Some(0));
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let (folder, mut broker) = started();
    broker.fine("topic create flights -p 3");
    broker.feed("produce flights --key-field origin", &flights(1000));
    broker.fine("consume flights -g crew --limit 400");
    let before = broker.json("group describe crew")["totalLag"].clone();
    broker.signal("KILL");
    let broker = Broker::start(folder.path());
    assert_eq!(broker.json("group describe crew")["totalLag"], before);
    let all = broker.fine("tail flights --from earliest -e -o name");
    assert_eq!(all.lines().count(), 1000);
    assert_eq!(
        broker
            .fine("consume -g crew --exit -o name")
            .lines()
            .count(),
        600
    );
}

#[test]
fn a_broker_that_cannot_start_says_why_by_its_code() {
    let (folder, mut broker) = started();
    let other = tempfile::tempdir().expect("a folder");
    let set = format!("listen={}", broker.server);
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--http-listen",
        "127.0.0.1:0",
        "--set",
        &set,
        "--data-dir",
    ]);
    let taken = command
        .arg(other.path())
        .output()
        .expect("the program starts");
    refused_start(&taken, 2, "cannot listen on");
    let file = other.path().join("file");
    std::fs::write(&file, "no folder").expect("a file");
    let no_folder = serve(&file)
        .stderr(Stdio::piped())
        .output()
        .expect("the program starts");
    refused_start(&no_folder, 2, "data folder");
    assert_eq!(broker.signal("TERM").status.code(), Some(0));
    std::fs::write(folder.path().join("identity"), "rot").expect("a file");
    let damaged = serve(folder.path()).stderr(Stdio::piped()).output();
    refused_start(
        &damaged.expect("the program starts"),
        65,
        "try: varvelog log verify",
    );
}

#[track_caller]
fn refused_start(output: &Output, code: i32, says: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert_eq!(stdout(output), "");
    assert!(stderr(output).contains(says), "{}", stderr(output));
}

#[test]
fn the_demo_shows_the_flights_and_cleans_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(PROGRAM)
        .args(["demo", "--exit"])
        .env_clear()
        .env("TMPDIR", folder.path())
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("produced 20,000 flights"), "{text}");
    assert!(
        text.contains("boarding: 20,000 records by 3 members"),
        "{text}"
    );
    assert!(text.contains("audit: 20,000 records by 1 member"), "{text}");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
