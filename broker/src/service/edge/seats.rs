//! How many connections there may be, in all and from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The connections that are open. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    limit_per_address: usize,
    /// Guards the counts alone; never held across an await.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// No entry is zero.
    by_address: BTreeMap<IpAddr, usize>,
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    inner: Arc<Inner>,
    address: IpAddr,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSeat {
    /// All are taken.
    Full,
    /// The address has as many as it may.
    AddressFull,
}

impl Seats {
    pub(super) fn new(limit: usize, limit_per_address: usize) -> Self {
        let taken = Mutex::default();
        Self {
            inner: Arc::new(Inner {
                limit,
                limit_per_address,
                taken,
            }),
        }
    }

    /// Takes a seat. Loopback is bounded by the limit of all alone.
    pub(super) fn take(&self, address: IpAddr) -> Result<Seat, NoSeat> {
        let address = address.to_canonical();
        let mut taken = self
            .inner
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.inner.limit {
            return Err(NoSeat::Full);
        }
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.inner.limit_per_address && !address.is_loopback() {
            return Err(NoSeat::AddressFull);
        }
        taken.all += 1;
        taken.by_address.insert(address, of_address + 1);
        Ok(Seat {
            inner: Arc::clone(&self.inner),
            address,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self
            .inner
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_gets_its_share_and_loopback_as_many_as_there_are() {
        let seats = Seats::new(5, 2);
        let far = address("10.0.0.1");
        let _one = seats.take(far).unwrap();
        let two = seats.take(address("::ffff:10.0.0.1")).unwrap();
        assert_eq!(seats.take(far).unwrap_err(), NoSeat::AddressFull);
        let near: Vec<Seat> = (0..3)
            .map(|_| seats.take(address("127.0.0.1")).unwrap())
            .collect();
        assert_eq!(seats.take(address("10.0.0.2")).unwrap_err(), NoSeat::Full);
        drop(two);
        drop(near);
        assert!(seats.take(far).is_ok());
        assert_eq!(seats.inner.taken.lock().unwrap().by_address.len(), 1);
    }
}
