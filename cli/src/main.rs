//! The `varvelog` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    varvelog_cli::main()
}
