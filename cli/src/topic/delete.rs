//! `varvelog topic delete`.

use clap::Args;
use varvelog_proto::v1;

use super::describe::get_topic;
use super::views::deletion_plan;
use crate::confirm::Consent;
use crate::context::Context;
use crate::failure::Failure;
use crate::group::groups_of_topic;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Even with dead letters that nobody has looked at
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: DeleteArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut plan = Vec::new();
    for name in &args.names {
        let topic = get_topic(&connection, name).await?;
        let groups = groups_of_topic(&connection, name).await?;
        let request = delete_request(name, true, args.force);
        connection
            .answer(
                connection
                    .topics()
                    .delete_topic(connection.request(request)),
            )
            .await?;
        plan.push((topic, groups));
    }
    if !args
        .consent
        .obtain(&deletion_plan(&plan), "Delete all of that?", context)?
    {
        return Ok(());
    }
    for name in &args.names {
        let request = delete_request(name, false, args.force);
        connection
            .answer(
                connection
                    .topics()
                    .delete_topic(connection.request(request)),
            )
            .await?;
        context.output.note(&format!("deleted {name}"));
    }
    Ok(())
}

fn delete_request(name: &str, validate_only: bool, force: bool) -> v1::DeleteTopicRequest {
    v1::DeleteTopicRequest {
        name: name.to_owned(),
        validate_only,
        force,
    }
}
