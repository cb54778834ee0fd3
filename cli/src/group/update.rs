//! `varvelog group update`.

use clap::Args;
use prost_types::FieldMask;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::settings::SettingArgs;
use super::views::group_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpdateArgs {
    /// Its name
    name: String,
    /// Check and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    settings: Box<SettingArgs>,
}

pub(crate) async fn run(args: UpdateArgs, context: &mut Context) -> Result<(), Failure> {
    let given = args.settings.to_config()?;
    if given.paths.is_empty() {
        return Err(Failure::usage("nothing to change: give a setting")
            .hint("varvelog group update --help"));
    }
    let connection = context.connect().await?;
    let update = v1::UpdateGroupRequest {
        name: args.name,
        config: Some(given.config),
        update_mask: Some(FieldMask { paths: given.paths }),
        validate_only: args.dry_run,
    };
    let group = Admin::new(&connection).update_group(update).await;
    let group = group.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&group_view(&group, &zone))?;
    if args.dry_run {
        context.output.note("dry run: nothing was changed");
    }
    Ok(())
}
