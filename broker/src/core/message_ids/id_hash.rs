//! What an id is known by.

use sha2::{Digest, Sha256};

/// The first 128 bits of the SHA-256 of a message id. It is kept in the log: never change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub [u8; 16]);

impl IdHash {
    /// Of an id, 1 to 128 bytes.
    pub fn of(id: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
        let (first, _) = digest.split_first_chunk().expect("32 bytes begin with 16");
        Self(*first)
    }

    /// Spread evenly; enough for a table that compares all of it.
    pub(super) fn short(self) -> u64 {
        let (first, _) = self.0.split_first_chunk().expect("16 bytes begin with 8");
        u64::from_le_bytes(*first)
    }

    /// Evenly spread too, and independent of [`Self::short`].
    pub(super) fn shard(self) -> usize {
        let [.., last] = self.0;
        usize::from(last)
    }
}

#[cfg(test)]
mod tests {
    use super::IdHash;

    #[test]
    fn an_id_has_the_hash_that_logs_hold() {
        let hex = |hash: IdHash| hash.0.map(|byte| format!("{byte:02x}")).concat();
        // As any other implementation of SHA-256 says.
        assert_eq!(hex(IdHash::of("abc")), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(hex(IdHash::of("")), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
