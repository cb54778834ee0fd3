//! The threads of the edge: one that accepts, and one single-threaded runtime for each edge.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use super::acceptor::{AcceptLimits, Arrival, EdgePort, accept};
use super::connection::{ConnectionContext, ConnectionLimits, serve};
use super::counts::PortCounts;
use super::guard::Peer;
use super::methods::Methods;
use super::phase::{Phase, PhaseSender, PhaseWatch};

/// Connections on their way to one edge.
const ARRIVALS_MAX: usize = 64;
/// How long work on blocking threads is waited for at the end.
const BLOCKING_GRACE: Duration = Duration::from_secs(1);

/// What the edges are made of.
#[derive(Debug)]
pub struct EdgeParts {
    /// Threads that serve connections; at least 1.
    pub edges: usize,
    /// The services.
    pub routes: Routes,
    /// What each of their methods may be sent.
    pub methods: Methods,
    /// Of all connections.
    pub accept: AcceptLimits,
    /// Of each connection.
    pub limits: ConnectionLimits,
    /// What is counted.
    pub counts: PortCounts,
}

/// The edges at work. Dropping it cuts every connection.
#[derive(Debug)]
pub struct EdgeHandle {
    address: SocketAddr,
    phase: PhaseSender,
    watch: PhaseWatch,
    threads: Vec<JoinHandle<()>>,
}

/// Begins to accept and serve.
pub fn open_edges(
    parts: EdgeParts,
    listener: TcpListener,
    (phase, watch): (PhaseSender, PhaseWatch),
) -> io::Result<EdgeHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let context = Arc::new(ConnectionContext {
        routes: parts.routes.prepare(),
        methods: Arc::new(parts.methods),
        limits: parts.limits,
        phase: watch.clone(),
        counts: parts.counts,
    });
    let mut handle = EdgeHandle {
        address,
        phase,
        watch: watch.clone(),
        threads: Vec::new(),
    };
    let mut edges = Vec::new();
    for number in 0..parts.edges.max(1) {
        let (arrivals, arriving) = mpsc::channel(ARRIVALS_MAX);
        edges.push(EdgePort {
            arrivals,
            load: Arc::new(AtomicUsize::new(0)),
        });
        let context = Arc::clone(&context);
        let serve = move |socket, peer| serve(Arc::clone(&context), socket, peer);
        let work = run_edge(watch.clone(), arriving, serve);
        handle.spawn(format!("edge-{number}"), work)?;
    }
    let acceptor = accept(listener, parts.accept, edges, watch);
    handle.spawn(String::from("edge-accept"), acceptor)?;
    Ok(handle)
}

impl EdgeHandle {
    /// Where connections are accepted.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The phase of these edges.
    pub fn phase(&self) -> PhaseWatch {
        self.watch.clone()
    }

    /// Moves the phase on.
    pub fn advance(&self, phase: Phase) {
        self.phase.advance(phase);
    }

    /// Runs `work` on a thread and runtime of its own, which belong to the edges from then on.
    pub fn spawn(
        &mut self,
        name: String,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name(format!("{name}-blocking"))
            .build()?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(runtime, work))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Accepts nothing more, ends streams with a status and lets calls in work finish; what is
    /// left after `grace` is cut. Returns when every thread is over.
    pub async fn drain(mut self, grace: Duration) {
        self.phase.advance(Phase::Draining);
        let threads = std::mem::take(&mut self.threads);
        let mut joined = tokio::task::spawn_blocking(move || join(threads));
        if tokio::time::timeout(grace, &mut joined).await.is_err() {
            self.phase.advance(Phase::Over);
            drop(joined.await);
        }
    }
}

impl Drop for EdgeHandle {
    fn drop(&mut self) {
        self.phase.advance(Phase::Over);
    }
}

fn run(runtime: Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
    runtime.shutdown_timeout(BLOCKING_GRACE);
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the edge panicked; this is a defect of the broker");
        }
    }
}

/// Accepts and serves, with `serve` for each connection, on the runtime of the caller: for a port
/// that needs no edge of its own. Returns when the phase is over, or draining is done.
pub async fn serve_aside<F>(
    listener: TcpListener,
    limits: AcceptLimits,
    phase: PhaseWatch,
    serve: impl Fn(TcpStream, Peer) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (arrivals, arriving) = mpsc::channel(ARRIVALS_MAX);
    let port = EdgePort {
        arrivals,
        load: Arc::new(AtomicUsize::new(0)),
    };
    let accepting = accept(listener, limits, vec![port], phase.clone());
    tokio::join!(accepting, run_edge(phase, arriving, serve));
}

/// Serves what arrives until the acceptor is gone, then what is left until the phase is over.
async fn run_edge<F>(
    phase: PhaseWatch,
    mut arriving: mpsc::Receiver<Arrival>,
    serve: impl Fn(TcpStream, Peer) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    loop {
        let arrival = tokio::select! {
            arrival = arriving.recv() => arrival,
            () = phase.reached(Phase::Over) => None,
        };
        let Some(Arrival {
            socket,
            peer,
            seat,
            load,
        }) = arrival
        else {
            break;
        };
        let Ok(socket) = TcpStream::from_std(socket) else {
            continue;
        };
        let serving = serve(socket, peer);
        connections.spawn(async move {
            serving.await;
            drop((seat, load));
        });
    }
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = phase.reached(Phase::Over) => {}
    }
}
