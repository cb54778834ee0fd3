//! A server under measurement: started, asked for its CPU time, ended.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A child process that printed `… grpc=ADDRESS …` when it was ready.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Result<Self, Box<dyn std::error::Error>> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().ok_or("no stdout")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("grpc="))
            .ok_or_else(|| format!("the server said {line:?}"))?
            .to_owned();
        Ok(Self { child, address })
    }

    /// Ends it as a power switch would end the process.
    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// User and system time so far, seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(Path::new(&format!("/proc/{}/stat", self.child.id())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// User and system time of this process so far, seconds.
pub(crate) fn own_cpu_seconds() -> f64 {
    cpu_seconds(Path::new("/proc/self/stat"))
}

/// Clock ticks a second, as Linux counts CPU time on every architecture that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

fn cpu_seconds(stat: &Path) -> f64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    // Fields 14 and 15, counted behind the name, which may hold spaces.
    let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = behind_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    ticks / TICKS_PER_SECOND
}
