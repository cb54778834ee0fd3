//! The way to a broker: one HTTP/2 connection, made again by itself when it breaks.

use std::fmt;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use varvelog_proto::v1::alert_service_client::AlertServiceClient;
use varvelog_proto::v1::cluster_service_client::ClusterServiceClient;
use varvelog_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use varvelog_proto::v1::group_admin_service_client::GroupAdminServiceClient;
use varvelog_proto::v1::group_service_client::GroupServiceClient;
use varvelog_proto::v1::log_service_client::LogServiceClient;
use varvelog_proto::v1::topic_service_client::TopicServiceClient;

use crate::error::CallError;

/// The broker's port unless it was given another.
pub const PORT_DEFAULT: u16 = 7461;

/// Largest message taken from a broker: above the largest request it takes itself (16 MiB unless
/// set higher) with room for what one may configure.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What a call goes through: the connection, with the token added.
pub type Transport = InterceptedService<Channel, Credentials>;

/// How to reach a broker.
///
/// ```
/// use varvelog_client::ConnectionConfig;
///
/// # async fn example() -> Result<(), varvelog_client::ConnectError> {
/// let connection = ConnectionConfig::new("localhost:7461").token("s3cret").open().await?;
/// assert_eq!(connection.address(), "localhost:7461");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConnectionConfig {
    address: String,
    token: Option<String>,
    connect_timeout: Duration,
    call_timeout: Duration,
}

impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionConfig")
            .field("address", &self.address)
            .field("token", &self.token.as_ref().map(|_| "(hidden)"))
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish()
    }
}

impl ConnectionConfig {
    /// A broker at `host:port`, `host` (port 7461) or `http://host:port`.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: None,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
        }
    }

    /// Send this token with every call, as `authorization: Bearer`. It travels in the clear
    /// unless something else encrypts the connection.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Longest wait for a connection. Default 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Deadline of a single call that is no stream. Default 30 s.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Connect now. Fails when nobody answers there.
    pub async fn open(&self) -> Result<Connection, ConnectError> {
        let (endpoint, credentials) = self.parts()?;
        let channel = endpoint
            .connect()
            .await
            .map_err(|source| ConnectError::Unreachable {
                address: self.address.clone(),
                source,
            })?;
        Ok(self.over(channel, credentials))
    }

    /// Connect with the first call. Must be called within a tokio runtime.
    pub fn open_lazily(&self) -> Result<Connection, ConnectError> {
        let (endpoint, credentials) = self.parts()?;
        Ok(self.over(endpoint.connect_lazy(), credentials))
    }

    /// Use a channel that was made otherwise, such as one with TLS or over a Unix socket. Token and
    /// call deadline are as here; the address is only shown.
    pub fn open_over(&self, channel: Channel) -> Result<Connection, ConnectError> {
        Ok(self.over(channel, Credentials::parse(self.token.as_deref())?))
    }

    fn over(&self, channel: Channel, credentials: Credentials) -> Connection {
        Connection {
            transport: InterceptedService::new(channel, credentials),
            address: self.address.clone(),
            call_timeout: self.call_timeout,
        }
    }

    fn parts(&self) -> Result<(Endpoint, Credentials), ConnectError> {
        let endpoint = Endpoint::from(parse_address(&self.address)?)
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_adaptive_window(false)
            .max_frame_size(FRAME_BYTES)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok((endpoint, Credentials::parse(self.token.as_deref())?))
    }
}

/// A connection to a broker. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Connection {
    transport: Transport,
    address: String,
    call_timeout: Duration,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A generated client with this crate's size limits.
macro_rules! generated {
    ($(#[$doc:meta])* $name:ident, $client:ident) => {
        $(#[$doc])*
        pub fn $name(&self) -> $client<Transport> {
            $client::new(self.transport.clone())
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX)
        }
    };
}

impl Connection {
    /// Connect now with default settings; see [`ConnectionConfig`].
    pub async fn open(address: impl Into<String>) -> Result<Self, ConnectError> {
        ConnectionConfig::new(address).open().await
    }

    /// The way to the broker, for generated clients of services that are not of this contract,
    /// such as gRPC health.
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// Where it leads, as given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A request that carries the call deadline, for calls of the generated clients that are no
    /// streams.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.call_timeout);
        request
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    generated! {
        /// The generated client of `LogService`.
        log, LogServiceClient
    }
    generated! {
        /// The generated client of `GroupService`.
        group, GroupServiceClient
    }
    generated! {
        /// The generated client of `TopicService`.
        topics, TopicServiceClient
    }
    generated! {
        /// The generated client of `GroupAdminService`.
        group_admin, GroupAdminServiceClient
    }
    generated! {
        /// The generated client of `DeadLetterService`.
        dead_letters, DeadLetterServiceClient
    }
    generated! {
        /// The generated client of `AlertService`.
        alerts, AlertServiceClient
    }
    generated! {
        /// The generated client of `ClusterService`.
        cluster, ClusterServiceClient
    }
}

/// Adds the token to every call.
#[derive(Clone)]
pub struct Credentials(Option<MetadataValue<Ascii>>);

impl Credentials {
    fn parse(token: Option<&str>) -> Result<Self, ConnectError> {
        let Some(token) = token else {
            return Ok(Self(None));
        };
        match format!("Bearer {token}").parse::<MetadataValue<Ascii>>() {
            Ok(mut value) => {
                value.set_sensitive(true);
                Ok(Self(Some(value)))
            }
            // The cause is dropped on purpose: it may quote the token.
            Err(_secret) => Err(ConnectError::Token),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Credentials(hidden)"
        } else {
            "Credentials(none)"
        })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not `host:port` and not an `http://` URL.
    #[error("{address:?} is no broker address: {problem}; give host:port or http://host:port")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// `https://`, which this build cannot speak.
    #[error("{address:?} asks for TLS, which this client was built without")]
    TlsUnsupported {
        /// As given.
        address: String,
    },
    /// The token holds characters that no header may carry.
    #[error("the token holds characters that cannot be sent")]
    Token,
    /// Nobody answers there.
    #[error("no broker answers at {address}")]
    Unreachable {
        /// As given.
        address: String,
        /// What the transport says.
        source: tonic::transport::Error,
    },
}

fn parse_address(address: &str) -> Result<Uri, ConnectError> {
    let bad = |problem: String| ConnectError::Address {
        address: address.to_owned(),
        problem,
    };
    let text = address.trim();
    let rest = match text.split_once("://") {
        None => text,
        Some(("http", rest)) => rest,
        Some(("https", _)) => {
            return Err(ConnectError::TlsUnsupported {
                address: address.to_owned(),
            });
        }
        Some((scheme, _)) => return Err(bad(format!("unknown scheme {scheme:?}"))),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() || rest.contains(['/', '?', '#', '@']) {
        return Err(bad("only a host and a port belong there".to_owned()));
    }
    let uri: Uri = format!("http://{rest}")
        .parse()
        .map_err(|e| bad(format!("{e}")))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| bad("the host is missing".to_owned()))?;
    if uri.port_u16().is_some() {
        return Ok(uri);
    }
    if rest != host {
        return Err(bad("the port is no number from 0 to 65535".to_owned()));
    }
    format!("http://{host}:{PORT_DEFAULT}")
        .parse()
        .map_err(|e| bad(format!("{e}")))
}

/// Unwraps an answer, or says what went wrong.
pub(crate) fn answer<T>(result: Result<tonic::Response<T>, Status>) -> Result<T, CallError> {
    Ok(result?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(address: &str) -> Result<String, ConnectError> {
        parse_address(address).map(|uri| uri.to_string())
    }

    #[test]
    fn an_address_is_a_host_a_host_and_port_or_an_http_url() {
        for (given, wanted) in [
            ("localhost:7461", "http://localhost:7461/"),
            ("localhost", "http://localhost:7461/"),
            ("http://10.0.0.1:99", "http://10.0.0.1:99/"),
            ("http://broker/", "http://broker:7461/"),
            ("[::1]:7000", "http://[::1]:7000/"),
            ("[::1]", "http://[::1]:7461/"),
        ] {
            assert_eq!(parsed(given).expect(given), wanted);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_before_dialling() {
        for given in [
            "",
            "http://",
            "ftp://x:1",
            "x:y",
            "http://a/b",
            "a b",
            ":7461",
            "u@h:1",
        ] {
            let error = parsed(given).expect_err(given);
            assert!(
                matches!(error, ConnectError::Address { .. }),
                "{given}: {error}"
            );
        }
        let error = parsed("https://broker:7461").expect_err("TLS");
        assert!(matches!(error, ConnectError::TlsUnsupported { .. }));
    }

    #[test]
    fn a_token_is_never_shown() {
        let config = ConnectionConfig::new("localhost").token("s3cret");
        assert!(!format!("{config:?}").contains("s3cret"));
        let credentials = Credentials::parse(Some("s3cret")).expect("valid");
        assert!(!format!("{credentials:?}").contains("s3cret"));
        let error = Credentials::parse(Some("bad\ns3cret")).expect_err("newline");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}
