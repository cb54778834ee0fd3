//! What several commands ask about groups.

use varvelog_client::Admin;
use varvelog_proto::v1;

use crate::connect::Connection;
use crate::failure::Failure;

/// The group with its members and lags.
pub(super) async fn get_group(connection: &Connection, name: &str) -> Result<v1::Group, Failure> {
    let group = Admin::new(connection).group(name).await;
    group.map_err(|error| connection.failure(error))
}

/// The groups that read a topic; all groups if it is empty.
pub(crate) async fn groups_of_topic(
    connection: &Connection,
    topic: &str,
) -> Result<Vec<v1::Group>, Failure> {
    let groups = Admin::new(connection).groups(topic).await;
    groups.map_err(|error| connection.failure(error))
}
