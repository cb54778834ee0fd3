//! `varvelog dlq export`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::filter::{FilterArgs, entry};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{View, to_json};

/// Dead letters that one call brings, at most.
const PAGE_MAX: i32 = 1_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExportArgs {
    /// The dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Only these
    #[arg(value_name = "PARTITION@OFFSET", value_parser = entry)]
    entries: Vec<v1::DeadLetterId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Without values
    #[arg(long)]
    no_values: bool,
}

/// Oldest first, page by page: whatever is in the topic, one page is held.
pub(crate) async fn run(args: ExportArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let admin = Admin::new(&connection);
    let mut request = v1::ListDeadLettersRequest {
        queue: args.queue.clone(),
        filter: Some(args.filter.to_filter(&args.entries)),
        page_size: PAGE_MAX,
        with_stack: true,
        omit_values: args.no_values,
        ..v1::ListDeadLettersRequest::default()
    };
    let mut written = 0;
    loop {
        let page = admin.dead_letters_page(request.clone()).await;
        let page = page.map_err(|error| connection.failure(error))?;
        let lines = page
            .letters
            .iter()
            .map(|letter| to_json("DeadLetter", letter));
        let view = View {
            items: lines.collect(),
            ..View::default()
        };
        context.output.show_lines(&view)?;
        written += page.letters.len();
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            context.output.note(&format!("{written} dead letters"));
            return Ok(());
        }
    }
}
