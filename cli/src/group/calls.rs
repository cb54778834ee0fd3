//! What several commands ask about groups.

use varvelog_proto::v1;

use crate::connect::Connection;
use crate::failure::Failure;

const PAGE_SIZE: i32 = 1000;

/// The group with its members and lags.
pub(crate) async fn get_group(connection: &Connection, name: &str) -> Result<v1::Group, Failure> {
    let request = connection.request(v1::GetGroupRequest {
        name: name.to_owned(),
    });
    let answer = connection
        .answer(connection.group_admin().get_group(request))
        .await?;
    Ok(answer.group.unwrap_or_default())
}

/// The groups that read a topic; all groups if it is empty.
pub(crate) async fn groups_of_topic(
    connection: &Connection,
    topic: &str,
) -> Result<Vec<v1::Group>, Failure> {
    let mut groups = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = connection.request(v1::ListGroupsRequest {
            page_size: PAGE_SIZE,
            page_token,
            topic: topic.to_owned(),
        });
        let page = connection
            .answer(connection.group_admin().list_groups(request))
            .await?;
        groups.extend(page.groups);
        if page.next_page_token.is_empty() {
            return Ok(groups);
        }
        page_token = page.next_page_token;
    }
}
