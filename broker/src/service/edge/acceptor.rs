//! Takes connections off the listener and hands each to the emptiest edge.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::guard::Peer;
use super::phase::{Phase, PhaseWatch};
use super::seats::{Seat, Seats};

/// After a failed accept nothing is accepted for so long: at the descriptor limit every try fails
/// at once.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptLimits {
    /// In all.
    pub connections_max: usize,
    /// From one address; loopback is exempt.
    pub connections_per_address_max: usize,
}

/// A connection on its way to an edge.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: std::net::TcpStream,
    pub(super) peer: Peer,
    pub(super) seat: Seat,
    /// Counts the connections of the edge.
    pub(super) load: LoadShare,
}

/// The way to one edge.
#[derive(Debug)]
pub(super) struct EdgePort {
    pub(super) arrivals: mpsc::Sender<Arrival>,
    pub(super) load: Arc<AtomicUsize>,
}

/// One connection in the count of an edge.
#[derive(Debug)]
pub(super) struct LoadShare(Arc<AtomicUsize>);

impl LoadShare {
    fn new(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(load))
    }
}

impl Drop for LoadShare {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts until the edge drains; then the listener is closed.
pub(super) async fn accept(
    listener: std::net::TcpListener,
    limits: AcceptLimits,
    edges: Vec<EdgePort>,
    phase: PhaseWatch,
) {
    let seats = Seats::new(limits.connections_max, limits.connections_per_address_max);
    // A descriptor to give up when there are no others: then a client that waits is refused
    // instead of hanging.
    let mut spare = listener.try_clone().ok();
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the listener cannot be served");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            () = phase.reached(Phase::Draining) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, address)) => take(socket, address, &seats, &edges),
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted");
                refuse_one(&listener, &mut spare).await;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Seats a connection at the emptiest edge, or closes it at once: its client then knows, where in
/// the listener's backlog it would hang.
fn take(socket: TcpStream, address: SocketAddr, seats: &Seats, edges: &[EdgePort]) {
    let seat = match seats.take(address.ip()) {
        Ok(seat) => seat,
        Err(why) => {
            tracing::debug!(%address, ?why, "connection refused");
            return;
        }
    };
    let load_of = |edge: &&EdgePort| edge.load.load(Ordering::Acquire);
    let (Some(edge), Ok(socket)) = (edges.iter().min_by_key(load_of), into_std(socket)) else {
        return;
    };
    let load = LoadShare::new(&edge.load);
    // A full queue drops the connection: its edge is not keeping up.
    drop(edge.arrivals.try_send(Arrival {
        socket,
        peer: Peer(address),
        seat,
        load,
    }));
}

fn into_std(socket: TcpStream) -> io::Result<std::net::TcpStream> {
    socket.set_nodelay(true)?;
    socket.into_std()
}

/// Gives the spare descriptor up for a moment, to close one connection that waits.
async fn refuse_one(listener: &TcpListener, spare: &mut Option<std::net::TcpListener>) {
    drop(spare.take());
    let accepted = tokio::time::timeout(PAUSE, listener.accept()).await;
    drop(accepted);
    *spare = clone_of(listener);
}

#[cfg(unix)]
fn clone_of(listener: &TcpListener) -> Option<std::net::TcpListener> {
    use std::os::fd::AsFd;
    let descriptor = listener.as_fd().try_clone_to_owned().ok()?;
    Some(std::net::TcpListener::from(descriptor))
}

#[cfg(not(unix))]
fn clone_of(_listener: &TcpListener) -> Option<std::net::TcpListener> {
    None
}
