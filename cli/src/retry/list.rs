//! `varvelog retry list`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::views::retries_view;
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;

/// Records that one call may bring.
const PAGE_MAX: u32 = 1_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// The group
    #[arg(short, long)]
    group: String,
    /// Only of this topic
    #[arg(long, default_value = "", hide_default_value = true)]
    topic: String,
    /// The first so many
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub(crate) async fn run(args: ListArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let found = first_retries(&connection, &args).await?;
    let zone = context.output.zone.clone();
    context
        .output
        .show(&retries_view(&found, clock::unix_ms(), &zone))?;
    if !found.next_page_token.is_empty() {
        context.output.note("there are more: --limit shows them");
    }
    Ok(())
}

/// The first ones as if they were one page.
async fn first_retries(
    connection: &Connection,
    args: &ListArgs,
) -> Result<v1::ListRetriesResponse, Failure> {
    let admin = Admin::new(connection);
    let mut all = v1::ListRetriesResponse::default();
    let mut left = args.limit;
    loop {
        let request = v1::ListRetriesRequest {
            group: args.group.clone(),
            topic: args.topic.clone(),
            page_size: i32::try_from(left.min(PAGE_MAX)).unwrap_or(i32::MAX),
            page_token: all.next_page_token,
        };
        let page = admin.retries_page(request).await;
        let page = page.map_err(|error| connection.failure(error))?;
        left = left.saturating_sub(u32::try_from(page.retries.len()).unwrap_or(u32::MAX));
        all.retries.extend(page.retries);
        all.histogram.extend(page.histogram);
        all.next_page_token = page.next_page_token;
        if left == 0 || all.next_page_token.is_empty() {
            return Ok(all);
        }
    }
}
