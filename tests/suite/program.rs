//! The real program: started on a folder, killed, started again.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use varvelog_client::Connection;

/// The program that `cargo test --workspace` builds beside this test.
pub(crate) fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("it lies in <profile>/deps");
    let program = folder.join("varvelog");
    assert!(
        program.exists(),
        "{} is missing: run `cargo build`",
        program.display()
    );
    program
}

/// A running broker.
pub(crate) struct Program {
    child: Child,
    pub(crate) grpc: String,
    pub(crate) http: String,
}

impl Program {
    /// Starts a broker on `data` and waits for its ready line. `grpc` may name a port to use again.
    pub(crate) fn start(data: &Path, grpc: &str, settings: &[(&str, &str)]) -> Self {
        Self::try_start(data, grpc, settings).expect("the broker becomes ready")
    }

    /// As [`Self::start`]; the error is what the program said on its standard error.
    pub(crate) fn try_start(
        data: &Path,
        grpc: &str,
        settings: &[(&str, &str)],
    ) -> Result<Self, (ExitStatus, String)> {
        let mut child = Command::new(path())
            .args([
                "serve",
                "--http-listen",
                "127.0.0.1:0",
                "--listen",
                grpc,
                "--data-dir",
            ])
            .arg(data)
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut errors = child.stderr.take().expect("its standard error is piped");
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            drop(errors.read_to_string(&mut text));
            text
        });
        let mut ready = String::new();
        let out = child.stdout.take().expect("its standard output is piped");
        drop(BufReader::new(out).read_line(&mut ready));
        let word = |name: &str| {
            ready
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name))
                .map(str::to_owned)
        };
        if let (Some(grpc), Some(http)) = (word("grpc="), word("http=")) {
            return Ok(Self { child, grpc, http });
        }
        let status = child.wait().expect("it ended");
        Err((status, errors.join().unwrap_or_default()))
    }

    /// A client's connection.
    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.grpc.clone())
            .await
            .expect("the broker takes connections")
    }

    /// Ends it as a power switch would end the process: no handler runs.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Asks it to stop and waits.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        self.child.wait().expect("it ends")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a command of the program against a broker, to its end.
pub(crate) fn run(server: &str, arguments: &[&str]) -> Output {
    Command::new(path())
        .args(arguments)
        .env("VARVELOG_SERVER", server)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started")
}

/// As [`run`], and demands success; its standard output.
pub(crate) fn run_ok(server: &str, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "varvelog {arguments:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).expect("the program writes text")
}
