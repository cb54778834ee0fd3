//! What a command is given to work with.

use crate::args::Global;
use crate::connect::{Connection, Server};
use crate::failure::Failure;
use crate::output::Output;

/// The options of every command, and where output goes.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) output: Output,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = !global.no_color && !no_color;
        let output = Output::standard(global.output, global.quiet, color);
        Self { global, output }
    }

    pub(crate) fn server(&self) -> Server {
        Server {
            name: self.global.server.clone(),
            timeout: self.global.timeout,
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        self.server().connect().await
    }
}
