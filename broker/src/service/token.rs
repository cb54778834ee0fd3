//! Ack tokens as clients carry them: opaque, versioned, bounded, with a checksum that tells a
//! damaged token from a stale one. A token grants nothing by itself: the group machine judges it
//! against leases and durable state.

use bytes::{BufMut, Bytes, BytesMut};
use varvelog_store::{Offset, PartitionId, TopicId};

use super::status::EdgeRefusal;
use crate::core::request::{AckToken, LeaseId, RETRY_RUN_MAX};
use crate::names::{GROUP_NAME_BYTES_MAX, GroupName};

/// Version 2 tells where the records of retries were appended first.
const VERSION: u8 = 2;
const CHECKSUM_BYTES: usize = 4;
/// Version, name length, and all fields of fixed size but the checksum.
const FIXED_BYTES: usize = 2 + 16 + 4 + 6 * 8 + 4 + 2;
/// Of a varint.
const ORIGIN_BYTES_MAX: usize = 10;

/// Longest token that decodes, bytes.
pub const TOKEN_BYTES_MAX: usize =
    FIXED_BYTES + GROUP_NAME_BYTES_MAX + ORIGIN_BYTES_MAX * RETRY_RUN_MAX + CHECKSUM_BYTES;

/// The token as a client gets it. `origins` must be rising and at most [`RETRY_RUN_MAX`].
pub fn encode(token: &AckToken) -> Bytes {
    let group = token.group.as_str().as_bytes();
    let room = FIXED_BYTES + group.len() + CHECKSUM_BYTES;
    let mut to = BytesMut::with_capacity(room + 2 * token.origins.len() + ORIGIN_BYTES_MAX);
    to.put_u8(VERSION);
    to.put_u8(u8::try_from(group.len()).expect("a group name has at most 64 bytes"));
    to.put_slice(group);
    to.put_slice(&token.partition.topic.0);
    to.put_u32_le(token.partition.partition);
    to.put_u64_le(token.group_id);
    to.put_u64_le(token.reset_count);
    to.put_u64_le(token.first.get());
    to.put_u64_le(token.last.get());
    to.put_u64_le(token.lease.0);
    to.put_u64_le(token.run);
    to.put_u32_le(token.attempt);
    put_origins(&mut to, &token.origins);
    let checksum = crc32fast::hash(&to);
    to.put_u32_le(checksum);
    to.freeze()
}

/// A count, the first offset, and how far each of the others lies beyond the one behind the one
/// before it: a run that does not rise cannot be written.
fn put_origins(to: &mut BytesMut, origins: &[Offset]) {
    let count = u16::try_from(origins.len()).expect("a retry run is short");
    assert!(
        usize::from(count) <= RETRY_RUN_MAX,
        "a retry run is bounded"
    );
    to.put_u16_le(count);
    let mut next = Offset::ZERO;
    for origin in origins {
        assert!(*origin >= next, "origins rise");
        put_varint(to, origin.since(next));
        next = origin.plus(1);
    }
}

fn put_varint(to: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        to.put_u8(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    to.put_u8(low);
}

/// The token that a client gave back.
pub fn decode(token: &[u8]) -> Result<AckToken, EdgeRefusal> {
    read(token).ok_or(EdgeRefusal::AckTokenInvalid)
}

fn read(token: &[u8]) -> Option<AckToken> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let (content, checksum) = token.split_last_chunk::<CHECKSUM_BYTES>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut from = content;
    let [version, name_bytes] = array(&mut from)?;
    if version != VERSION {
        return None;
    }
    let (name, rest) = from.split_at_checked(usize::from(name_bytes))?;
    from = rest;
    let read = AckToken {
        group: GroupName::parse(std::str::from_utf8(name).ok()?).ok()?,
        partition: PartitionId {
            topic: TopicId(array(&mut from)?),
            partition: u32::from_le_bytes(array(&mut from)?),
        },
        group_id: number(&mut from)?,
        reset_count: number(&mut from)?,
        first: Offset::new(number(&mut from)?)?,
        last: Offset::new(number(&mut from)?)?,
        lease: LeaseId(number(&mut from)?),
        run: number(&mut from)?,
        attempt: u32::from_le_bytes(array(&mut from)?),
        origins: origins(&mut from)?,
    };
    let is_whole = from.is_empty() && read.first <= read.last;
    // One for each record, or none at all.
    let records = usize::try_from(read.last.plus(1).since(read.first)).ok()?;
    let is_told = read.origins.is_empty() || read.origins.len() == records;
    (is_whole && is_told).then_some(read)
}

fn origins(from: &mut &[u8]) -> Option<Vec<Offset>> {
    let count = usize::from(u16::from_le_bytes(array(from)?));
    if count > RETRY_RUN_MAX {
        return None;
    }
    let mut origins = Vec::with_capacity(count);
    let mut next = 0_u64;
    for _ in 0..count {
        let origin = next.checked_add(varint(from)?)?;
        origins.push(Offset::new(origin)?);
        next = origin.checked_add(1)?;
    }
    Some(origins)
}

/// At most ten bytes, the shortest form only.
fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let [byte] = array(from)?;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << shift;
        if shifted >> shift != bits {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(value);
        }
    }
    None
}

fn number(from: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(array(from)?))
}

fn array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(group: &str) -> AckToken {
        AckToken {
            group: GroupName::parse(group).unwrap(),
            group_id: 7,
            reset_count: 2,
            partition: PartitionId {
                topic: TopicId([9; 16]),
                partition: 3,
            },
            first: Offset::ZERO.plus(100),
            last: Offset::ZERO.plus(599),
            lease: LeaseId(u64::MAX),
            run: 5,
            attempt: 1,
            origins: Vec::new(),
        }
    }

    /// Of retries with these origins.
    fn of_retries(origins: &[u64]) -> AckToken {
        let token = sample("email");
        let count = u64::try_from(origins.len()).unwrap();
        AckToken {
            last: token.first.plus(count).minus(1),
            origins: origins.iter().map(|at| Offset::new(*at).unwrap()).collect(),
            ..token
        }
    }

    #[test]
    fn a_token_comes_back_as_it_went_out() {
        for group in ["g", &"a".repeat(64)] {
            let token = sample(group);
            let bytes = encode(&token);
            assert!(bytes.len() <= TOKEN_BYTES_MAX);
            assert_eq!(decode(&bytes), Ok(token));
        }
    }

    #[test]
    fn the_longest_run_of_retries_fits_and_takes_two_bytes_a_record_when_they_are_near() {
        let near: Vec<u64> = (0..500).map(|at| 1_000_000 + at * 100).collect();
        let far: Vec<u64> = (0..500).map(|at| at * (u64::MAX / 2 / 500)).collect();
        for origins in [&near, &far] {
            let token = of_retries(origins);
            let bytes = encode(&token);
            assert!(bytes.len() <= TOKEN_BYTES_MAX);
            assert_eq!(decode(&bytes), Ok(token));
        }
        assert!(encode(&of_retries(&near)).len() < FIXED_BYTES + 10 + 500 * 2);
    }

    #[test]
    fn a_token_with_any_bit_flipped_or_any_byte_missing_is_refused() {
        bits_and_bytes(&encode(&sample("email")));
        bits_and_bytes(&encode(&of_retries(&[7, 8, 900, 1 << 40])));
    }

    fn bits_and_bytes(good: &[u8]) {
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), Err(EdgeRefusal::AckTokenInvalid), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "length {length}");
        }
        assert!(decode(&[good, b"x"].concat()).is_err());
    }

    /// Seals content as the broker would, to reach what lies behind the checksum.
    fn sealed(content: &[u8]) -> Vec<u8> {
        [content, &crc32fast::hash(content).to_le_bytes()[..]].concat()
    }

    #[test]
    fn what_the_broker_would_never_write_is_refused_though_its_checksum_is_right() {
        let good = encode(&sample("email"));
        let content = &good[..good.len() - CHECKSUM_BYTES];
        assert!(decode(&sealed(content)).is_ok());
        let mut later = content.to_vec();
        later[0] = 3;
        assert!(
            decode(&sealed(&later)).is_err(),
            "a version that is to come"
        );
        let mut dotted = content.to_vec();
        dotted[2] = b'.';
        assert!(decode(&sealed(&dotted)).is_err(), "a name that is none");
        assert!(
            decode(&sealed(&[content, b"x"].concat())).is_err(),
            "something left over"
        );
        let mut token = sample("email");
        (token.first, token.last) = (token.last, token.first);
        assert!(
            decode(&encode(&token)).is_err(),
            "the last before the first"
        );
        let mut fewer = of_retries(&[7, 8, 9]);
        fewer.last = fewer.last.plus(1);
        assert!(decode(&encode(&fewer)).is_err(), "a record without origin");
        let endless = [&content[..content.len() - 2], &[1, 0], &[0xff; 10]].concat();
        assert!(decode(&sealed(&endless)).is_err(), "an offset beyond all");
        let many = [&content[..content.len() - 2], &501_u16.to_le_bytes()].concat();
        let many = [&many[..], &[0; 501]].concat();
        assert!(decode(&sealed(&many)).is_err(), "more than a run has");
    }

    proptest! {
        #[test]
        fn any_rising_origins_come_back(
            steps in proptest::collection::vec(1_u64..1 << 48, 1..=RETRY_RUN_MAX),
        ) {
            let rising = steps.iter().scan(0_u64, |at, step| { *at += step; Some(*at) });
            let token = of_retries(&rising.collect::<Vec<_>>());
            let bytes = encode(&token);
            prop_assert!(bytes.len() <= TOKEN_BYTES_MAX);
            prop_assert_eq!(decode(&bytes), Ok(token));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(
            content in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            drop(decode(&content));
            drop(decode(&sealed(&content)));
        }
    }
}
