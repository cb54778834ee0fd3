//! The way to a broker, with failures that say what to try next.

use std::ops::Deref;
use std::time::Duration;

use tonic::{Code, Response, Status, TimeoutExpired};
use varvelog_client::{CallError, ConnectError, ConnectionConfig};

use crate::failure::{Failure, innermost};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// A broker as the user names it, and how long its answers may take.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// As given: `host:port` or a URL.
    pub(crate) name: String,
    /// For one call that is no stream.
    pub(crate) timeout: Duration,
}

/// A connection to a broker.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    client: varvelog_client::Connection,
    server: Server,
}

impl Deref for Connection {
    type Target = varvelog_client::Connection;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}

impl Server {
    /// Connects, so that a broker that is not there is noticed at once.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let config = ConnectionConfig::new(&self.name)
            .connect_timeout(CONNECT_TIME_MAX)
            .call_timeout(self.timeout);
        let Ok(opened) = tokio::time::timeout(self.timeout, config.open()).await else {
            return Err(self.no_answer());
        };
        match opened {
            Ok(client) => Ok(Connection {
                client,
                server: self.clone(),
            }),
            Err(ConnectError::Unreachable { source, .. }) => {
                Err(Failure::unreachable(&self.name, &innermost(&source)))
            }
            Err(
                error @ (ConnectError::Address { .. }
                | ConnectError::TlsUnsupported { .. }
                | ConnectError::Token),
            ) => Err(Failure::usage(error.to_string())),
        }
    }
}

impl Server {
    fn no_answer(&self) -> Failure {
        let within = humantime::format_duration(self.timeout);
        let status = Status::deadline_exceeded(format!("no answer within {within}"));
        Failure::call(&status.into(), &self.name)
    }
}

impl Connection {
    /// Waits for the answer of a call, no longer than the timeout, and makes a [`Failure`] of
    /// a refusal.
    pub(crate) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.server.timeout, call).await {
            Ok(answer) => answer
                .map(Response::into_inner)
                .map_err(|status| self.failure(status)),
            Err(_) => Err(self.server.no_answer()),
        }
    }

    /// A refusal, or a stream that broke.
    pub(crate) fn failure(&self, error: impl Into<CallError>) -> Failure {
        let error = error.into();
        if is_timeout(&error) {
            return self.server.no_answer();
        }
        Failure::call(&error, &self.server.name)
    }
}

/// Whether the transport gave up at the call's deadline; it says so in no other way.
fn is_timeout(error: &CallError) -> bool {
    error.code() == Code::Cancelled && error.message() == TimeoutExpired(()).to_string()
}
