//! The way to a broker.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use varvelog_proto::v1::cluster_service_client::ClusterServiceClient;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::topic_service_client::TopicServiceClient;

use crate::failure::Failure;

/// Replies larger than the 4 MiB of generated clients come only when we ask for them.
const REPLY_BYTES_MAX: usize = 68 << 20;
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// A broker as the user names it, and how long its answers may take.
#[derive(Clone, Debug)]
pub struct Server {
    /// As given: `host:port` or a URL.
    pub name: String,
    /// For one call that is no stream.
    pub timeout: Duration,
}

/// A connection: made by the first call on it.
#[derive(Clone, Debug)]
pub struct Connection {
    channel: Channel,
    server: Server,
}

impl Server {
    /// The URL that is connected to.
    pub fn url(&self) -> Result<String, Failure> {
        let name = self.name.as_str();
        if name.starts_with("https://") {
            return Err(Failure::usage("this build has no TLS, and https:// needs it"));
        }
        let authority = name.strip_prefix("http://").unwrap_or(name).trim_end_matches('/');
        if authority.is_empty() || authority.contains('/') {
            return Err(Failure::usage(format!("--server {name}: expected HOST:PORT or a URL")));
        }
        Ok(format!("http://{authority}"))
    }

    /// Connects, so that a broker that is not there is noticed at once.
    pub async fn connect(&self) -> Result<Connection, Failure> {
        let endpoint = Endpoint::from_shared(self.url()?)
            .map_err(|error| Failure::usage(format!("--server {}: {error}", self.name)))?
            .connect_timeout(self.timeout.min(CONNECT_TIME_MAX))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .tcp_nodelay(true);
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| Failure::unreachable(&self.name, &innermost(&error)))?;
        Ok(Connection { channel, server: self.clone() })
    }
}

macro_rules! clients {
    ($($(#[$doc:meta])* $name:ident: $client:ident),+ $(,)?) => {
        $($(#[$doc])*
        pub fn $name(&self) -> $client<Channel> {
            $client::new(self.channel.clone()).max_decoding_message_size(REPLY_BYTES_MAX)
        })+
    };
}

impl Connection {
    clients! {
        /// Append and read.
        log: LogServiceClient,
        /// Consume in a group.
        group: GroupServiceClient,
        /// Topics.
        topics: TopicServiceClient,
        /// Groups.
        groups: GroupAdminServiceClient,
        /// The broker itself.
        cluster: ClusterServiceClient,
    }

    /// The channel, for services that are not ours.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A request that the broker gives up on after the timeout; for calls that are no streams.
    pub fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.server.timeout);
        request
    }

    /// Waits for the answer of a call, no longer than the timeout, and makes a [`Failure`] of
    /// a refusal.
    pub async fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.server.timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(|s| self.failure(&s)),
            Err(_) => Err(self.failure(&tonic::Status::deadline_exceeded(format!(
                "no answer within {}",
                humantime::format_duration(self.server.timeout)
            )))),
        }
    }

    /// A refusal, or a stream that broke.
    pub fn failure(&self, status: &tonic::Status) -> Failure {
        Failure::call(status, &self.server.name)
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(name: &str) -> Result<String, Failure> {
        Server { name: name.into(), timeout: Duration::from_secs(1) }.url()
    }

    #[test]
    fn a_server_is_an_address_or_a_url() {
        assert_eq!(url("localhost:7461").unwrap(), "http://localhost:7461");
        assert_eq!(url("http://[::1]:7461/").unwrap(), "http://[::1]:7461");
        assert!(url("https://broker:7461").unwrap_err().message.contains("TLS"));
        for wrong in ["", "http://", "ftp://x", "a/b"] {
            assert_eq!(url(wrong).unwrap_err().exit, crate::exit::Exit::Usage, "{wrong}");
        }
    }
}
