//! The calls of one connection: how many are open, and whether any came of late.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::counts::CountedCall;

/// Counts of one connection. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    /// Notes a call; it is open until the returned value is dropped.
    pub(super) fn begin(&self) -> OpenCall {
        self.counts.started.fetch_add(1, Ordering::AcqRel);
        OpenCall {
            counts: Arc::clone(&self.counts),
        }
    }

    /// Calls so far, whether over or not.
    pub(super) fn started(&self) -> u64 {
        self.counts.started.load(Ordering::Acquire)
    }

    /// Whether no call is open.
    pub(super) fn is_idle(&self) -> bool {
        self.counts.ended.load(Ordering::Acquire) == self.started()
    }
}

/// A call that is not over.
#[derive(Debug)]
pub(super) struct OpenCall {
    counts: Arc<Counts>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.counts.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// A response body that keeps its call open.
#[derive(Debug)]
pub(super) struct CallBody {
    inner: tonic::body::Body,
    counted: CountedCall,
    _call: OpenCall,
}

impl CallBody {
    pub(super) fn new(inner: tonic::body::Body, counted: CountedCall, call: OpenCall) -> Self {
        Self {
            inner,
            counted,
            _call: call,
        }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.counted.look_at(trailers);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_every_call_is_over() {
        let calls = Calls::default();
        assert!(calls.is_idle());
        let first = calls.begin();
        let second = calls.begin();
        drop(first);
        assert!(!calls.is_idle());
        drop(second);
        assert!(calls.is_idle());
        assert_eq!(calls.started(), 2);
    }
}
