//! The real program against a broker that is the real program too.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_varvelog");

/// A running `varvelog serve`. Killed when dropped.
struct Broker {
    child: Child,
    server: String,
    ready: String,
}

impl Broker {
    fn start(folder: &Path) -> Self {
        let mut child = serve(folder).spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("text");
        let server = ready
            .split_whitespace()
            .find_map(|word| word.strip_prefix("grpc="))
            .unwrap_or_else(|| panic!("no ready line but {ready:?}"))
            .to_owned();
        Self {
            child,
            server,
            ready,
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .env("TZ", "UTC")
            .env("PATH", std::env::var_os("PATH").expect("PATH"));
        command
            .env("VARVELOG_SERVER", &self.server)
            .args(line.split(' '));
        command
    }

    /// The line's words are the arguments.
    fn run(&self, line: &str) -> Output {
        self.command(line)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    fn feed(&self, line: &str, input: &str) -> Output {
        let mut child = self
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).expect("written");
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    #[track_caller]
    fn fine(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        stdout(&output)
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let text = self.fine(&format!("{line} -o json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    #[track_caller]
    fn refused(&self, line: &str, code: i32, says: &str) {
        let output = self.run(line);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(says),
            "{line}: {}",
            stderr(&output)
        );
    }

    fn signal(&mut self, signal: &str) -> Output {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .expect("kill");
        assert!(sent.success());
        let status = self.child.wait().expect("it ends");
        Output {
            status,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn serve(folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            "--data-dir",
        ])
        .arg(folder)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn started() -> (TempDir, Broker) {
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(folder.path());
    (folder, broker)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// `count` lines with three keys in turn.
fn flights(count: usize) -> String {
    let mut lines = String::new();
    let origins = ["SAN", "SFO", "LAX"].into_iter().cycle();
    for (number, origin) in origins.take(count).enumerate() {
        writeln!(lines, "{{\"origin\":\"{origin}\",\"number\":{number}}}").expect("text");
    }
    lines
}

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
fn lines_go_in_and_come_out() {
    let (_folder, broker) = started();
    broker.fine("topic create flights -p 3");
    let produced = broker.feed("produce flights --key-field origin -o json", &flights(300));
    assert_eq!(produced.status.code(), Some(0), "{}", stderr(&produced));
    let summary: Value = serde_json::from_str(&stdout(&produced)).expect("JSON");
    assert_eq!(
        (&summary["records"], &summary["failed"]),
        (&"300".into(), &"0".into())
    );
    let all = broker.fine("tail flights --from earliest -e -f %v\\n");
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_by_key(|line| line.len());
    assert_eq!(lines.len(), 300);
    let last = broker.fine("tail flights -n 5 -e");
    assert_eq!(last.lines().count(), 5);
    let record: Value = serde_json::from_str(last.lines().last().expect("a line")).expect("JSON");
    assert_eq!(record["topic"], "flights");
    assert!(
        record["offset"].is_string() && record["key"].is_string(),
        "{record}"
    );
    let one_key = broker.fine("tail flights --from earliest -e --key SAN -f %k\\n");
    assert_eq!(one_key, "SAN\n".repeat(100));
    assert_eq!(
        broker
            .fine("tail flights --from earliest --limit 7")
            .lines()
            .count(),
        7
    );
    let found = broker.fine("tail flights --from earliest -e --grep :299}");
    assert_eq!(found.lines().count(), 1);
    assert_eq!(broker.fine("tail flights --from latest -e"), "");
    broker.refused("tail nothing -e", 3, "[TOPIC_NOT_FOUND]");
    broker.refused("produce nothing", 3, "[TOPIC_NOT_FOUND]");
}

#[test]
fn lines_that_are_no_records_are_reported_and_the_others_sent() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    let input = "{\"k\":\"a\"}\nnonsense\n{\"x\":1}\n{\"k\":\"b\"}";
    let produced = broker.feed("produce t --key-field k", input);
    assert_eq!(produced.status.code(), Some(8), "{}", stderr(&produced));
    assert!(
        stderr(&produced).contains("line 2: not JSON"),
        "{}",
        stderr(&produced)
    );
    assert!(
        stderr(&produced).contains("line 3: no field \"k\""),
        "{}",
        stderr(&produced)
    );
    assert_eq!(
        broker.fine("tail t -e -f %k=%v\\n"),
        "a={\"k\":\"a\"}\nb={\"k\":\"b\"}\n"
    );
    let produced = broker.feed("produce t -k : -H source=tower --tombstones", "a:\nb:1\n");
    assert_eq!(produced.status.code(), Some(0), "{}", stderr(&produced));
    let last = broker.fine("tail t -n 2 -e");
    let records: Vec<Value> = last
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records[0]["value"], Value::Null);
    assert_eq!(records[1]["headers"]["source"], "tower");
    let unanswered = broker.feed("produce t --acks none", "x\ny\n");
    assert_eq!(unanswered.status.code(), Some(0), "{}", stderr(&unanswered));
}

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
fn a_command_is_run_for_each_record() {
    let (folder, broker) = started();
    broker.fine("topic create t");
    broker.feed("produce t -k :", "a:1\nb:2\nc:3\n");
    let seen = folder.path().join("seen");
    let script = format!(
        "printf '%s=%s\\n' \"$VARVELOG_KEY\" \"$(cat)\" >> {}",
        seen.display()
    );
    let output = broker
        .command("consume t -g workers --exit --exec")
        .arg(script)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        std::fs::read_to_string(seen).expect("a file"),
        "a=1\nb=2\nc=3\n"
    );
    assert_eq!(broker.json("group describe workers")["totalLag"], "0");
    broker.feed("produce t", "bad\n");
    let output = broker
        .command("consume t -g workers --exit --limit 1 --exec")
        .arg("exit 3")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    assert_eq!(broker.json("group describe workers")["totalLag"], "1");
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
