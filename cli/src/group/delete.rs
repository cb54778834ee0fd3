//! `varvelog group delete`.

use clap::Args;
use varvelog_proto::v1;

use super::calls::get_group;
use super::views::groups_view;
use crate::confirm::Consent;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Their dead letters too, which else are kept
    #[arg(long)]
    purge_dead_letters: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: DeleteArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = |name: &str, validate_only| {
        connection.request(v1::DeleteGroupRequest {
            name: name.to_owned(),
            purge_dead_letters: args.purge_dead_letters,
            validate_only,
        })
    };
    let mut groups = Vec::new();
    for name in &args.names {
        groups.push(get_group(&connection, name).await?);
        connection
            .answer(connection.group_admin().delete_group(request(name, true)))
            .await?;
    }
    if !args
        .consent
        .obtain(&groups_view(&groups), "Delete these groups?", context)?
    {
        return Ok(());
    }
    for name in &args.names {
        connection
            .answer(connection.group_admin().delete_group(request(name, false)))
            .await?;
        context.output.note(&format!("deleted {name}"));
    }
    Ok(())
}
