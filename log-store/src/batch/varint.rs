//! Zigzag varints of 32 and 64 bits, canonical only: at most 5 and 10 bytes, and never longer than
//! the value needs.

use super::record::Blame;
use crate::batch::RecordFault;

const CONTINUED: u8 = 0x80;

const fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)).cast_unsigned()
}

const fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag32(coded: u32) -> i32 {
    (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed())
}

const fn unzigzag64(coded: u64) -> i64 {
    (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed())
}

/// Bytes of `value` as a varint of 32 bits.
#[inline]
pub(super) const fn len32(value: i32) -> u32 {
    (38 - (zigzag32(value) | 1).leading_zeros()) / 7
}

/// Bytes of `value` as a varint of 64 bits.
#[inline]
pub(super) const fn len64(value: i64) -> u32 {
    (70 - (zigzag64(value) | 1).leading_zeros()) / 7
}

/// Writes `value` as a varint of 32 bits.
#[inline]
pub(super) fn put32(into: &mut Vec<u8>, value: i32) {
    put(into, zigzag32(value).into());
}

/// Writes `value` as a varint of 64 bits.
#[inline]
pub(super) fn put64(into: &mut Vec<u8>, value: i64) {
    put(into, zigzag64(value));
}

#[inline]
fn put(into: &mut Vec<u8>, coded: u64) {
    let [low, ..] = coded.to_le_bytes();
    if coded < 1 << 7 {
        into.push(low);
    } else if coded < 1 << 14 {
        let [high, ..] = (coded >> 7).to_le_bytes();
        into.extend_from_slice(&[low | CONTINUED, high]);
    } else {
        put_long(into, coded);
    }
}

fn put_long(into: &mut Vec<u8>, mut coded: u64) {
    while coded >= 1 << 7 {
        let [low, ..] = coded.to_le_bytes();
        into.push(low | CONTINUED);
        coded >>= 7;
    }
    let [last, ..] = coded.to_le_bytes();
    into.push(last);
}

/// Takes a varint of 32 bits from the front of `from`; `field` names it in a fault.
#[inline]
pub(super) fn take32<E: Blame>(from: &mut &[u8], field: &'static str) -> Result<i32, E> {
    match *from {
        [first, rest @ ..] if *first < CONTINUED => {
            *from = rest;
            Ok(unzigzag32(u32::from(*first)))
        }
        [first, second, rest @ ..] if *second < CONTINUED && *second > 0 => {
            *from = rest;
            Ok(unzigzag32(
                u32::from(*first & 0x7f) | u32::from(*second) << 7,
            ))
        }
        _ => {
            let Ok(coded) = u32::try_from(take_long(from, 5, field)?) else {
                return Err(E::of(|| RecordFault::Varint { field }));
            };
            Ok(unzigzag32(coded))
        }
    }
}

/// Takes a varint of 64 bits from the front of `from`; `field` names it in a fault.
#[inline]
pub(super) fn take64<E: Blame>(from: &mut &[u8], field: &'static str) -> Result<i64, E> {
    match *from {
        [first, rest @ ..] if *first < CONTINUED => {
            *from = rest;
            Ok(unzigzag64(u64::from(*first)))
        }
        _ => Ok(unzigzag64(take_long(from, 10, field)?)),
    }
}

fn take_long<E: Blame>(from: &mut &[u8], bytes_max: u32, field: &'static str) -> Result<u64, E> {
    let mut coded = 0_u64;
    let mut rest = *from;
    for place in 0..bytes_max {
        let Some((&byte, behind)) = rest.split_first() else {
            return Err(E::of(|| RecordFault::Cut { field }));
        };
        rest = behind;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * place);
        // Bits pushed out at the top, or a last byte that adds nothing.
        if shifted >> (7 * place) != bits || (byte == 0 && place > 0) {
            return Err(E::of(|| RecordFault::Varint { field }));
        }
        coded |= shifted;
        if byte < CONTINUED {
            *from = rest;
            return Ok(coded);
        }
    }
    Err(E::of(|| RecordFault::Varint { field }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes32(value: i32) -> Vec<u8> {
        let mut into = Vec::new();
        put32(&mut into, value);
        into
    }

    fn bytes64(value: i64) -> Vec<u8> {
        let mut into = Vec::new();
        put64(&mut into, value);
        into
    }

    fn read32(mut from: &[u8]) -> Result<(i32, usize), RecordFault> {
        take32(&mut from, "number").map(|value| (value, from.len()))
    }

    fn read64(mut from: &[u8]) -> Result<(i64, usize), RecordFault> {
        take64(&mut from, "number").map(|value| (value, from.len()))
    }

    #[test]
    fn small_numbers_have_the_bytes_of_the_specification() {
        let cases: [(i32, &[u8]); 8] = [
            (0, &[0x00]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (-8193, &[0x81, 0x80, 0x01]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in cases {
            assert_eq!(bytes32(value), bytes, "{value}");
            assert_eq!(read32(bytes), Ok((value, 0)));
            if value > i32::MIN && value < i32::MAX {
                assert_eq!(bytes64(i64::from(value)), bytes);
            }
        }
        assert_eq!(bytes64(i64::MIN), [[0xff; 9].as_slice(), &[0x01]].concat());
    }

    #[test]
    fn a_varint_longer_than_its_value_needs_is_refused() {
        let fault = Err(RecordFault::Varint { field: "number" });
        for long in [
            &[0x80, 0x00][..],
            &[0x81, 0x80, 0x00],
            &[0x80, 0x80, 0x80, 0x80, 0x00],
        ] {
            assert_eq!(read32(long), fault);
        }
        assert_eq!(
            read64(&[0x80, 0x00]),
            Err(RecordFault::Varint { field: "number" })
        );
    }

    #[test]
    fn a_varint_too_large_for_its_field_is_refused() {
        let fault = RecordFault::Varint { field: "number" };
        assert_eq!(read32(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(fault));
        assert_eq!(read32(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0x01]), Err(fault));
        let nine = [0xff; 9];
        assert_eq!(read64(&[&nine[..], &[0x02]].concat()), Err(fault));
        assert_eq!(read64(&[&nine[..], &[0x81, 0x01]].concat()), Err(fault));
        assert_eq!(read64(&[0xff; 11]), Err(fault));
    }

    proptest! {
        #[test]
        fn every_number_comes_back_from_its_bytes(
            a in any::<i32>(),
            b in any::<i64>(),
            narrow in 0_u32..64,
        ) {
            let (a, b) = (a >> (narrow / 2), b >> narrow);
            let bytes = bytes32(a);
            prop_assert_eq!(u32::try_from(bytes.len()).unwrap(), len32(a));
            prop_assert_eq!(read32(&bytes), Ok((a, 0)));
            for cut in 0..bytes.len() {
                prop_assert_eq!(read32(&bytes[..cut]), Err(RecordFault::Cut { field: "number" }));
            }
            let bytes = bytes64(b);
            prop_assert_eq!(u32::try_from(bytes.len()).unwrap(), len64(b));
            prop_assert_eq!(read64(&bytes), Ok((b, 0)));
            for cut in 0..bytes.len() {
                prop_assert_eq!(read64(&bytes[..cut]), Err(RecordFault::Cut { field: "number" }));
            }
        }

        #[test]
        fn whatever_is_read_would_be_written_the_same(
            bytes in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            if let Ok((value, left)) = read32(&bytes) {
                prop_assert_eq!(&bytes32(value)[..], &bytes[..bytes.len() - left]);
            }
            if let Ok((value, left)) = read64(&bytes) {
                prop_assert_eq!(&bytes64(value)[..], &bytes[..bytes.len() - left]);
            }
        }
    }
}
