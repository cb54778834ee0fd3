//! The broker itself.

use std::time::Duration;

use futures_core::Stream;
use futures_util::TryStreamExt as _;
use varvelog_proto::v1;

use super::Admin;
use super::duration;
use crate::connection::answer;
use crate::error::CallError;

impl Admin {
    /// Who answers.
    pub async fn info(&self) -> Result<v1::GetInfoResponse, CallError> {
        let request = self.connection.request(v1::GetInfoRequest {});
        answer(self.connection.cluster().get_info(request).await)
    }

    /// Settings in force whose key begins so.
    pub async fn config(
        &self,
        prefix: impl Into<String>,
    ) -> Result<Vec<v1::ConfigEntry>, CallError> {
        let request = self.connection.request(v1::GetConfigRequest {
            prefix: prefix.into(),
        });
        Ok(answer(self.connection.cluster().get_config(request).await)?.entries)
    }

    /// Which broker leads which partition; no `topics`: of all.
    pub async fn routes(&self, topics: Vec<String>) -> Result<v1::GetRoutesResponse, CallError> {
        let request = self.connection.request(v1::GetRoutesRequest { topics });
        answer(self.connection.cluster().get_routes(request).await)
    }

    /// Figures again and again, every second unless `interval` says otherwise, until the stream
    /// is dropped or breaks.
    pub async fn watch_overview(
        &self,
        interval: Option<Duration>,
    ) -> Result<impl Stream<Item = Result<v1::WatchOverviewResponse, CallError>> + use<>, CallError>
    {
        let watch = v1::WatchOverviewRequest {
            interval: interval.map(duration),
        };
        let stream = answer(self.connection.cluster().watch_overview(watch).await)?;
        Ok(stream.map_err(CallError::from))
    }

    /// A consistent copy of all data, piece by piece. A stream that ends without a message that
    /// says `complete` is no backup.
    pub async fn export_backup(
        &self,
    ) -> Result<impl Stream<Item = Result<v1::ExportBackupResponse, CallError>> + use<>, CallError>
    {
        let export = v1::ExportBackupRequest {};
        let stream = answer(self.connection.cluster().export_backup(export).await)?;
        Ok(stream.map_err(CallError::from))
    }
}
