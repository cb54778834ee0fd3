//! The whole path, measured: one producer stream and one consumer against the broker's release
//! binary, beside a bare floor (gRPC stream, CRC and file write, nothing else) in the same run.
//!
//! `varvelog-load run --binary target/release/varvelog` prints one line a measurement: records/s,
//! MB/s, and the CPU of each side. It talks to 127.0.0.1 only and ends by itself.

mod backpressure;
mod drive;
mod floor;
mod holes;
mod process;
mod queue;
mod restart;

use std::path::PathBuf;

const USAGE: &str = "usage: varvelog-load run --binary PATH [--mib N] [--rounds N] [--dir DIR]
       varvelog-load startup --binary PATH [--dir DIR]
       varvelog-load idle --binary PATH [--dir DIR]
       varvelog-load queue --binary PATH [--dir DIR]
       varvelog-load order --binary PATH [--dir DIR]
       varvelog-load delays --binary PATH [--dir DIR]
       varvelog-load holes --binary PATH [--dir DIR]
       varvelog-load backpressure --binary PATH [--dir DIR]
       varvelog-load floor-server DIR";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("floor-server") => {
            let dir = arguments.get(1).ok_or(USAGE)?;
            floor::serve(PathBuf::from(dir)).await
        }
        Some("run") => drive::run(&options(&arguments)?).await,
        Some("startup") => restart::startup(&options(&arguments)?).await,
        Some("queue") => queue::run(&options(&arguments)?).await,
        Some("order") => queue::order(&options(&arguments)?).await,
        Some("delays") => queue::delays(&options(&arguments)?).await,
        Some("holes") => holes::run(&options(&arguments)?).await,
        Some("backpressure") => backpressure::run(&options(&arguments)?).await,
        Some("idle") => restart::idle(&options(&arguments)?).await,
        _ => Err(USAGE.into()),
    }
}

fn options(arguments: &[String]) -> Result<drive::Options, Box<dyn std::error::Error>> {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    Ok(drive::Options {
        binary: PathBuf::from(value("--binary").ok_or(USAGE)?),
        mib: value("--mib").map_or(Ok(1024), |text| text.parse())?,
        rounds: value("--rounds").map_or(Ok(3), |text| text.parse())?,
        dir: value("--dir").map_or_else(std::env::temp_dir, PathBuf::from),
    })
}
