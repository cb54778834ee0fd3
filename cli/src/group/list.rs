//! `varvelog group list`.

use clap::Args;

use super::calls::groups_of_topic;
use super::views::groups_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Only groups that read this topic
    #[arg(long, default_value = "", hide_default_value = true)]
    topic: String,
}

pub(crate) async fn run(args: ListArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let groups = groups_of_topic(&connection, &args.topic).await?;
    context.output.show(&groups_view(&groups))?;
    Ok(())
}
