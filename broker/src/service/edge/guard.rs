//! How a connection is doing, for calls on it that end.
//!
//! A call sees only that its stream was dropped. Whether its client ended the stream, ended the
//! connection or vanished is known to the socket alone, so the socket carries a guard and every
//! call on it a clone.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::core::request::StreamEnd;

/// How long after a stream's end its connection is looked at: a client that ends as a whole
/// resets its streams first, and the end of its connection follows within this time.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Address of a call's client, as an extension of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client closed it.
    Eof,
    /// Reading or writing failed.
    Error,
    /// The client did not answer a ping in time.
    Silent,
    /// This side closed it.
    Dropped,
}

/// Set once, when its connection ends. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ConnectionGuard(Arc<AtomicU8>);

const LIVE: u8 = 0;
const EOF: u8 = 1;
const ERROR: u8 = 2;
const SILENT: u8 = 3;
const DROPPED: u8 = 4;

impl ConnectionGuard {
    /// How the connection ended; nothing while it lives.
    pub fn end(&self) -> Option<ConnectionEnd> {
        match self.0.load(Ordering::Acquire) {
            EOF => Some(ConnectionEnd::Eof),
            ERROR => Some(ConnectionEnd::Error),
            SILENT => Some(ConnectionEnd::Silent),
            DROPPED => Some(ConnectionEnd::Dropped),
            _ => None,
        }
    }

    /// Notes the end; the first one counts.
    pub fn note(&self, end: ConnectionEnd) {
        let state = match end {
            ConnectionEnd::Eof => EOF,
            ConnectionEnd::Error => ERROR,
            ConnectionEnd::Silent => SILENT,
            ConnectionEnd::Dropped => DROPPED,
        };
        let _another_was_first =
            self.0
                .compare_exchange(LIVE, state, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether both are of one connection.
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Judges a stream of this connection that was just dropped by its client.
    pub async fn judge(&self) -> StreamEnd {
        tokio::time::sleep(LOOK_AFTER).await;
        match self.end() {
            None => StreamEnd::Clean,
            Some(ConnectionEnd::Silent) => StreamEnd::Silent,
            Some(ConnectionEnd::Eof | ConnectionEnd::Error | ConnectionEnd::Dropped) => {
                StreamEnd::Broken
            }
        }
    }
}

/// A socket that tells its guard how it ended.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    socket: S,
    guard: ConnectionGuard,
}

impl<S> Guarded<S> {
    pub(super) fn new(socket: S, guard: ConnectionGuard) -> Self {
        Self { socket, guard }
    }

    fn noted<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(result, Poll::Ready(Err(_))) {
            self.guard.note(ConnectionEnd::Error);
        }
        result
    }
}

impl<S> Drop for Guarded<S> {
    fn drop(&mut self) {
        self.guard.note(ConnectionEnd::Dropped);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let had_room = buffer.remaining() > 0;
        let result = Pin::new(&mut self.socket).poll_read(cx, buffer);
        let is_end = had_room && buffer.filled().len() == before;
        if is_end && matches!(result, Poll::Ready(Ok(()))) {
            self.guard.note(ConnectionEnd::Eof);
        }
        self.noted(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.noted(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        self.noted(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.noted(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (
        Guarded<tokio::io::DuplexStream>,
        tokio::io::DuplexStream,
        ConnectionGuard,
    ) {
        let (ours, theirs) = tokio::io::duplex(64);
        let guard = ConnectionGuard::default();
        (Guarded::new(ours, guard.clone()), theirs, guard)
    }

    #[tokio::test]
    async fn the_guard_tells_a_closed_connection_from_one_that_lives() {
        let (mut ours, mut theirs, guard) = pair();
        theirs.write_all(b"x").await.unwrap();
        assert_eq!(ours.read_u8().await.unwrap(), b'x');
        assert_eq!(guard.end(), None);
        drop(theirs);
        assert_eq!(ours.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(guard.end(), Some(ConnectionEnd::Eof));
    }

    #[tokio::test]
    async fn a_failed_write_is_an_error_and_the_first_end_counts() {
        let (mut ours, theirs, guard) = pair();
        drop(theirs);
        assert!(ours.write_all(b"x").await.is_err());
        assert_eq!(guard.end(), Some(ConnectionEnd::Error));
        drop(ours);
        assert_eq!(guard.end(), Some(ConnectionEnd::Error));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_judged_by_how_its_connection_does_a_moment_later() {
        let judge = |end: Option<ConnectionEnd>| async move {
            let guard = ConnectionGuard::default();
            let judged = tokio::spawn({
                let guard = guard.clone();
                async move { guard.judge().await }
            });
            tokio::task::yield_now().await;
            if let Some(end) = end {
                guard.note(end);
            }
            judged.await.unwrap()
        };
        assert_eq!(judge(None).await, StreamEnd::Clean);
        assert_eq!(judge(Some(ConnectionEnd::Eof)).await, StreamEnd::Broken);
        assert_eq!(judge(Some(ConnectionEnd::Error)).await, StreamEnd::Broken);
        assert_eq!(judge(Some(ConnectionEnd::Dropped)).await, StreamEnd::Broken);
        assert_eq!(judge(Some(ConnectionEnd::Silent)).await, StreamEnd::Silent);
    }
}
