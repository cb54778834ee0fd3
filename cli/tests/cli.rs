//! The real program: usage, exit codes, and the commands that need no broker.

#![expect(clippy::disallowed_methods, reason = "files that the program is given")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn varvelog(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varvelog"))
        .args(args)
        .env_clear()
        .env("TZ", "UTC")
        .output()
        .expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[track_caller]
fn refused(args: &[&str], code: i32, says: &str) {
    let output = varvelog(args);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains(says),
        "{args:?}: {}",
        stderr(&output)
    );
    assert_eq!(stdout(&output), "", "{args:?}");
}

#[test]
fn the_command_line_is_well_defined() {
    varvelog_cli::command().debug_assert();
}

#[test]
fn help_of_every_command_is_as_it_was() {
    let mut text = String::new();
    collect_help(&mut varvelog_cli::command(), &mut text);
    insta::assert_snapshot!(text);
}

/// Without the options of every command, which the first page shows.
fn collect_help(command: &mut clap::Command, text: &mut String) {
    command.build();
    let help = command.render_help().to_string();
    let own = help
        .split("\nOptions of every command:")
        .next()
        .unwrap_or_default();
    writeln!(text, "=== {}\n{}\n", command.get_name(), own.trim_end()).expect("text");
    for below in command.get_subcommands_mut() {
        collect_help(below, text);
    }
}

#[test]
fn a_wrong_command_line_is_code_2() {
    refused(&["fly"], 2, "unrecognized subcommand 'fly'");
    refused(&["topic", "create"], 2, "<NAME>");
    refused(
        &["topic", "create", "t", "--retention", "5"],
        2,
        "`5` is no duration",
    );
    refused(&["tail", "t", "--from", "soon"], 2, "`soon` is no position");
    refused(&["tail", "t", "-f", "%z"], 2, "`%z` is unknown");
    refused(
        &["produce", "t", "-k", ":", "--key-field", "f"],
        2,
        "cannot be used with",
    );
    refused(&["consume", "t"], 2, "--group");
    refused(&["topic", "list", "-o", "xml"], 2, "xml");
    refused(&["topic", "list", "--timeout", "soon"], 2, "no duration");
    refused(&["group", "reset", "g"], 2, "--to");
    refused(&["topic", "alter", "t"], 2, "nothing to change");
    refused(&["topic", "list", "--server", "https://x"], 2, "TLS");
}

#[test]
fn a_broker_that_is_not_there_is_code_5_with_a_hint() {
    let nobody = ["--server", "127.0.0.1:1", "--timeout", "2s"];
    for command in [
        &["topic", "list"][..],
        &["topic", "delete", "t", "--yes"],
        &["produce", "t"],
        &["tail", "t"],
        &["consume", "t", "-g", "g"],
        &["group", "describe", "g"],
        &["cluster", "info"],
        &["config", "show", "--running"],
    ] {
        let args: Vec<&str> = command.iter().chain(&nobody).copied().collect();
        refused(&args, 5, "try: varvelog serve");
    }
    let args = ["cluster", "health", "--server", "127.0.0.1:1", "-o", "json"];
    let output = varvelog(&args);
    assert_eq!(output.status.code(), Some(10));
    assert!(
        stdout(&output).contains("\"healthy\": false"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn the_template_is_a_valid_configuration() {
    let template = varvelog(&["config", "template"]);
    assert_eq!(template.status.code(), Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("varvelog.toml");
    std::fs::write(&path, &template.stdout).expect("a file");
    let file = path.to_str().expect("text");
    let checked = varvelog(&["config", "check", "--config", file]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert_eq!(stderr(&checked), "the configuration is valid\n");
    let shown = varvelog(&["config", "show", "-c", file, "wal.", "-o", "name"]);
    assert_eq!(stdout(&shown), "wal.sync\nwal.file_bytes\n");
}

#[test]
fn a_wrong_configuration_is_code_2_and_names_the_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("varvelog.toml");
    std::fs::write(&path, "[wal]\nsink = \"never\"\n").expect("a file");
    let file = path.to_str().expect("text");
    let unknown = format!("{file}:2: unknown key `wal.sink`, did you mean `wal.sync`?");
    refused(&["config", "check", "-c", file], 2, &unknown);
    refused(
        &["config", "check", "--set", "edges=-1"],
        2,
        "expected a number from 0 to 256",
    );
    refused(
        &["config", "check", "--listen", "0.0.0.0:1"],
        2,
        "--insecure",
    );
    refused(
        &["config", "show", "-c", "/nonexistent.toml"],
        2,
        "/nonexistent.toml",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_varvelog"))
        .args(["config", "check"])
        .env("VARVELOG__WAL__SYNC", "sometimes")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("VARVELOG__WAL__SYNC: `wal.sync` is \"sometimes\""));
}

#[test]
fn the_contract_is_written_as_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("api");
    let output = varvelog(&["proto", dir.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (path, text) in varvelog_proto::PROTO_FILES {
        assert_eq!(&read(&dir.join(path)), text);
    }
    assert!(read(&dir.join("varvelog-service-config.json")).contains("retryPolicy"));
    assert_eq!(
        stdout(&output).lines().count(),
        varvelog_proto::PROTO_FILES.len() + 1
    );
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn shells_and_man_are_served() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&varvelog(&["completions", shell]));
        assert!(script.contains("add-partitions"), "{shell}");
    }
    assert!(stdout(&varvelog(&["man"])).starts_with(".ie"));
    let folder = tempfile::tempdir().expect("a folder");
    let output = varvelog(&["man", "--dir", folder.path().to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(read(&folder.path().join("varvelog-topic-create.1")).contains("partitions"));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_varvelog"))
        .args(["config", "template"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

/// A server that answers each connection with these bytes, and keeps it open or closes it.
fn fake_server(answer: &'static [u8], keeps_open: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut socket in listener.incoming().flatten().take(64) {
            drop(socket.read(&mut [0; 1024]));
            drop(socket.write_all(answer));
            open.extend(keeps_open.then_some(socket));
        }
    });
    address
}

#[test]
fn a_server_that_is_no_broker_is_named_with_what_to_do() {
    let web = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let ssh = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n";
    for answer in [&web[..], ssh] {
        let server = fake_server(answer, true);
        for line in [
            "cluster info",
            "topic list",
            "tail flights -e",
            "consume t -g g",
        ] {
            let mut args = vec!["--server", &server, "--timeout", "5s"];
            args.extend(line.split(' '));
            refused(&args, 5, "does not speak gRPC");
            refused(&args, 5, "--server HOST:PORT with the broker's gRPC port");
        }
    }
    let closes = fake_server(b"", false);
    let list = ["--server", &closes, "topic", "list"];
    refused(&list, 5, "broke: ");
    refused(&list, 5, "--server HOST:PORT with the broker's gRPC port");
}

#[test]
fn no_answer_in_time_is_code_7_however_short_the_time() {
    let silent = fake_server(b"", true);
    for timeout in ["0s", "1ns", "200ms"] {
        for line in [
            "cluster health",
            "cluster info",
            "topic list",
            "consume t -g g",
        ] {
            let mut args = vec!["--server", &silent, "--timeout", timeout];
            args.extend(line.split(' '));
            refused(&args, 7, "no answer within");
            refused(&args, 7, "--timeout with more time");
        }
    }
}
