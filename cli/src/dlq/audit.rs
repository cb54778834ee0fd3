//! `varvelog dlq audit`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::job_views::audit_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct AuditArgs {
    /// Only of this dead-letter topic, group or topic
    #[arg(value_name = "SUBJECT", default_value = "", hide_default_value = true)]
    subject: String,
    /// The newest so many
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(i32).range(1..=1_000))]
    limit: i32,
}

pub(crate) async fn run(args: AuditArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = v1::ListAuditRequest {
        page_size: args.limit,
        page_token: String::new(),
        subject: args.subject,
    };
    let page = Admin::new(&connection).audit_page(request).await;
    let page = page.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&audit_view(&page.entries, &zone))?;
    if !page.next_page_token.is_empty() {
        context.output.note("there are more: --limit shows them");
    }
    Ok(())
}
