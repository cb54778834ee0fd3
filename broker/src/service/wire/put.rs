//! Writing fields. Lengths are arithmetic, so that a nested message is written in one pass.

use bytes::{BufMut, BytesMut};

const WIRE_VARINT: u64 = 0;
const WIRE_BYTES: u64 = 2;

/// Bytes that a varint takes.
pub const fn varint_len(value: u64) -> usize {
    // Seven bits a byte; zero takes one byte.
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Bytes that an `int64`, `int32` or `bool` field takes; a zero is left out.
pub const fn int_field_len(number: u32, value: i64) -> usize {
    if value == 0 {
        0
    } else {
        key_len(number) + varint_len(value.cast_unsigned())
    }
}

/// Bytes that a `bytes`, `string` or message field of `length` bytes takes.
pub const fn bytes_field_len(number: u32, length: usize) -> usize {
    key_len(number) + varint_len(length as u64) + length
}

const fn key_len(number: u32) -> usize {
    varint_len((number as u64) << 3)
}

/// Appends fields to a buffer that the caller reserved.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    to: &'a mut BytesMut,
}

impl<'a> MessageWriter<'a> {
    /// Writes behind what `to` holds.
    pub fn new(to: &'a mut BytesMut) -> Self {
        Self { to }
    }

    /// An integer; zero is left out.
    pub fn int(&mut self, number: u32, value: i64) {
        if value != 0 {
            self.key(number, WIRE_VARINT);
            self.varint(value.cast_unsigned());
        }
    }

    /// A switch; false is left out.
    pub fn switch(&mut self, number: u32, value: bool) {
        self.int(number, i64::from(value));
    }

    /// Bytes or text; empty ones are left out.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        if !value.is_empty() {
            self.present_bytes(number, value);
        }
    }

    /// Bytes or text, also when empty.
    pub fn present_bytes(&mut self, number: u32, value: &[u8]) {
        self.open(number, value.len());
        self.to.put_slice(value);
    }

    /// The head of a message, text or bytes field whose `length` bytes follow.
    pub fn open(&mut self, number: u32, length: usize) {
        self.key(number, WIRE_BYTES);
        self.varint(length as u64);
    }

    /// Bytes of a field that [`Self::open`] began.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.to.put_slice(bytes);
    }

    fn key(&mut self, number: u32, wire_type: u64) {
        self.varint((u64::from(number) << 3) | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            let [low, ..] = value.to_le_bytes();
            self.to.put_u8(low | 0x80);
            value >>= 7;
        }
        let [low, ..] = value.to_le_bytes();
        self.to.put_u8(low);
    }
}
