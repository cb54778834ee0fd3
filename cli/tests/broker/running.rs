//! The program running: as a broker, and as commands against it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_varvelog");

/// A running `varvelog serve`. Killed when dropped.
pub(crate) struct Broker {
    child: Child,
    pub(crate) server: String,
    pub(crate) ready: String,
}

impl Broker {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_at(folder, "127.0.0.1:0")
    }

    pub(crate) fn start_at(folder: &Path, listen: &str) -> Self {
        let mut child = serve_at(folder, listen)
            .spawn()
            .expect("the program starts");
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

    pub(crate) fn command(&self, line: &str) -> Command {
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
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    pub(crate) fn feed(&self, line: &str, input: &str) -> Output {
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
    pub(crate) fn fine(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        stdout(&output)
    }

    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        let text = self.fine(&format!("{line} -o json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    #[track_caller]
    pub(crate) fn refused(&self, line: &str, code: i32, says: &str) {
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

    /// The line's words and the script are the arguments.
    #[track_caller]
    pub(crate) fn exec(&self, line: &str, script: &str, code: i32) -> Output {
        let mut command = self.command(line);
        let output = command.arg("--exec").arg(script).stdin(Stdio::null());
        let output = output.output().expect("the program starts");
        let got = output.status.code();
        assert_eq!(got, Some(code), "{line}: {}", stderr(&output));
        output
    }

    pub(crate) fn signal(&mut self, signal: &str) -> Output {
        self.signal_times(signal, 1)
    }

    /// Sends it several times at once.
    pub(crate) fn signal_times(&mut self, signal: &str, times: u32) -> Output {
        for _ in 0..times {
            send(signal, &self.child);
        }
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

pub(crate) fn serve(folder: &Path) -> Command {
    serve_at(folder, "127.0.0.1:0")
}

fn serve_at(folder: &Path, listen: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args([
            "serve",
            "--listen",
            listen,
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

pub(crate) fn started() -> (TempDir, Broker) {
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(folder.path());
    (folder, broker)
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A command that goes on until it is interrupted.
pub(crate) struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    pub(crate) fn start(broker: &Broker, line: &str) -> Self {
        Self::spawn(broker.command(line))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line
    }

    pub(crate) fn interrupt(mut self) -> Option<i32> {
        send("INT", &self.child);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn send(signal: &str, to: &Child) {
    let pid = to.id().to_string();
    let sent = Command::new("kill")
        .args(["-s", signal, &pid])
        .status()
        .expect("kill");
    assert!(sent.success());
}
