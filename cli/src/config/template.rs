//! `varvelog config template`.

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TemplateArgs {}

pub(crate) fn run(_: TemplateArgs, context: &mut Context) -> Result<(), Failure> {
    context
        .output
        .raw(varvelog_broker::config::template().as_bytes())?;
    Ok(context.output.flush()?)
}
