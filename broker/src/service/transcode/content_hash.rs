//! A hash of what a request appends, to tell a repeated request from another with the same id.
//!
//! Stable across releases and processes, since it is kept in the log. It guards against mistakes,
//! not against an adversary, who could only confuse requests of its own.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash in the making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) struct ContentHash(u64);

impl ContentHash {
    pub(in crate::service) const fn new() -> Self {
        Self(MULTIPLIER)
    }

    pub(in crate::service) fn number(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * u128::from(MULTIPLIER);
        // Folding both halves keeps every bit of the product; adding keeps a product of zero from
        // swallowing what came before.
        let [low, high] = [product & u128::from(u64::MAX), product >> 64]
            .map(|half| u64::try_from(half).unwrap_or(u64::MAX));
        self.0 = (low ^ high)
            .wrapping_add(value.rotate_left(32))
            .wrapping_add(MULTIPLIER);
    }

    /// Bytes with their length, so that neighbours cannot trade bytes.
    pub(in crate::service) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.number(u64::from_le_bytes(last));
    }

    /// Bytes that may be absent, which is not the same as empty.
    pub(in crate::service) fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.number(u64::MAX),
        }
    }

    /// Headers in any order: a map is written in another order each time by some languages.
    pub(in crate::service) fn headers<'a>(
        &mut self,
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) {
        let mut sum = 0_u64;
        for (name, value) in headers {
            let mut one = Self::new();
            one.bytes(name);
            one.optional(value);
            sum = sum.wrapping_add(one.0);
        }
        self.number(sum);
    }

    pub(in crate::service) const fn finish(self) -> u64 {
        self.0
    }
}
