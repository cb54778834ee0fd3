//! What the port counts: open connections and calls, and how calls ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use prometheus_client::metrics::gauge::Gauge;
use tonic::Code;

use super::methods::Methods;

/// gRPC's codes, 0 to 16.
const CODES: usize = 17;
/// As what calls of unknown methods are counted.
const UNKNOWN: &str = "unknown";

/// Counts of a port. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PortCounts {
    /// Open connections.
    pub connections: Gauge,
    /// Open calls.
    pub streams: Gauge,
    /// By path, for the known methods and [`UNKNOWN`]; by code.
    calls: Arc<BTreeMap<String, [AtomicU64; CODES]>>,
}

impl PortCounts {
    /// Counts of calls of these methods.
    pub fn of(methods: &Methods) -> Self {
        let names = methods.paths().chain([UNKNOWN]).map(str::to_owned);
        let calls = names.map(|path| (path, Default::default())).collect();
        Self {
            calls: Arc::new(calls),
            ..Self::default()
        }
    }

    /// A call begins.
    pub(super) fn begin(&self, path: &str) -> CountedCall {
        self.streams.inc();
        let known = self.calls.get_key_value(path);
        CountedCall {
            counts: self.clone(),
            path: known.map_or(UNKNOWN, |(path, _)| path).to_owned(),
            code: None,
        }
    }

    /// How many calls ended with each code, by path and code, where there were any.
    pub fn calls(&self) -> impl Iterator<Item = (&str, Code, u64)> {
        self.calls.iter().flat_map(|(path, codes)| {
            let codes = (0..).map(Code::from_i32).zip(codes);
            let counts = codes.map(|(code, count)| (code, count.load(Ordering::Relaxed)));
            let some = counts.filter(|(_, count)| *count > 0);
            some.map(|(code, count)| (path.as_str(), code, count))
        })
    }

    fn end(&self, path: &str, code: Code) {
        let counts = self.calls.get(path);
        let index = usize::try_from(i32::from(code)).unwrap_or(0);
        if let Some(count) = counts.and_then(|counts| counts.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A call that is open. One that is dropped before its status went out was cancelled.
#[derive(Debug)]
pub(super) struct CountedCall {
    counts: PortCounts,
    path: String,
    code: Option<Code>,
}

impl CountedCall {
    /// Headers or trailers go out: they may carry the status.
    pub(super) fn look_at(&mut self, headers: &HeaderMap) {
        let status = headers.get("grpc-status");
        if let Some(status) = status {
            self.code = Some(Code::from_bytes(status.as_bytes()));
        }
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.counts.streams.dec();
        self.counts
            .end(&self.path, self.code.unwrap_or(Code::Cancelled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_by_its_status_and_as_cancelled_without_one() {
        let methods = Methods::of(&[varvelog_proto::FILE_DESCRIPTOR_SET], 1 << 20).unwrap();
        let counts = PortCounts::of(&methods);
        let fetch = "/varvelog.v1.LogService/Fetch";
        let status = |code: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", http::HeaderValue::from_static(code));
            headers
        };
        for (path, code) in [(fetch, "0"), (fetch, "0"), (fetch, "5"), ("/no/Such", "12")] {
            counts.begin(path).look_at(&status(code));
        }
        let open = counts.begin(fetch);
        assert_eq!(counts.streams.get(), 1);
        drop(open);
        assert_eq!(counts.streams.get(), 0);
        let found: Vec<_> = counts.calls().collect();
        let expected = [
            (fetch, Code::Ok, 2),
            (fetch, Code::Cancelled, 1),
            (fetch, Code::NotFound, 1),
            (UNKNOWN, Code::Unimplemented, 1),
        ];
        assert_eq!(found, expected);
    }
}
