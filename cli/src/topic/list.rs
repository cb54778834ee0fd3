//! `varvelog topic list`.

use clap::Args;
use varvelog_proto::v1;

use super::views::topics_view;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;

const PAGE_SIZE: i32 = 1000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Only names that begin so
    #[arg(default_value = "")]
    prefix: String,
    /// Also the retry and dead-letter topics of groups
    #[arg(long)]
    derived: bool,
}

pub(crate) async fn run(args: ListArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let topics = all_topics(&connection, &args.prefix, args.derived).await?;
    context
        .output
        .show(&topics_view(&topics, &context.output.zone.clone()))?;
    Ok(())
}

/// Every page. The broker bounds how many topics there can be.
async fn all_topics(
    connection: &Connection,
    prefix: &str,
    derived: bool,
) -> Result<Vec<v1::Topic>, Failure> {
    let mut topics = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = connection.request(v1::ListTopicsRequest {
            page_size: PAGE_SIZE,
            page_token,
            name_prefix: prefix.to_owned(),
            include_derived: derived,
        });
        let page = connection
            .answer(connection.topics().list_topics(request))
            .await?;
        topics.extend(page.topics);
        if page.next_page_token.is_empty() {
            return Ok(topics);
        }
        page_token = page.next_page_token;
    }
}
