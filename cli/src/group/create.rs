//! `varvelog group create`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::settings::SettingArgs;
use super::views::group_view;
use crate::clock;
use crate::context::Context;
use crate::failure::Failure;
use crate::parse;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateArgs {
    /// Letters, digits, _ and -, at most 64
    name: String,
    /// What it reads
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Where it begins: as of tail [default: earliest]
    #[arg(long, value_parser = parse::from, allow_hyphen_values = true, value_name = "POSITION")]
    from: Option<parse::From>,
    /// A group that is there already is no error, whatever its settings
    #[arg(long)]
    if_not_exists: bool,
    /// Check and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    settings: Box<SettingArgs>,
}

pub(crate) async fn run(args: CreateArgs, context: &mut Context) -> Result<(), Failure> {
    let given = args.settings.to_config()?;
    let connection = context.connect().await?;
    let create = v1::CreateGroupRequest {
        name: args.name,
        topics: args.topics,
        config: Some(given.config),
        start: args.from.map(|from| from.to_position(clock::unix_ms())),
        validate_only: args.dry_run,
        ok_if_exists: args.if_not_exists,
    };
    let group = Admin::new(&connection).create_group(create).await;
    let group = group.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&group_view(&group, &zone))?;
    if args.dry_run {
        context.output.note("dry run: nothing was changed");
    }
    Ok(())
}
