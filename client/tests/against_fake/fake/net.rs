//! Connections in memory that can be cut.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

const PIPE_BYTES: usize = 1 << 20;

/// The server's side of each connection.
pub(crate) type Incoming = ReceiverStream<io::Result<DuplexStream>>;

#[derive(Debug, Clone)]
pub(crate) struct Net {
    accepted: mpsc::Sender<io::Result<DuplexStream>>,
    cuts: watch::Sender<u64>,
    down: Arc<AtomicBool>,
}

impl Net {
    pub(crate) fn new() -> (Self, Incoming) {
        let (accepted, incoming) = mpsc::channel(64);
        let net = Self {
            accepted,
            cuts: watch::Sender::new(0),
            down: Arc::default(),
        };
        (net, ReceiverStream::new(incoming))
    }

    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        let net = self.clone();
        let dial = tower::service_fn(move |_uri: Uri| {
            let net = net.clone();
            async move { net.dial().await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://fake").connect_with_connector_lazy(dial)
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        if self.down.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, mut near) = duplex(PIPE_BYTES);
        let (mut far, server) = duplex(PIPE_BYTES);
        let mut cuts = self.cuts.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = cuts.changed() => {}
            }
        });
        let accepted = self.accepted.send(Ok(server)).await;
        accepted.map_err(|_gone| io::ErrorKind::ConnectionReset)?;
        Ok(client)
    }
}
