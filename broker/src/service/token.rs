//! Ack tokens as clients carry them: opaque, versioned, bounded, with a checksum that tells a
//! damaged token from a stale one. A token grants nothing by itself: the group machine judges it
//! against leases and durable state.

use bytes::{BufMut, Bytes, BytesMut};
use varvelog_store::{Offset, PartitionId, TopicId};

use super::status::EdgeRefusal;
use crate::core::request::{AckToken, LeaseId};
use crate::names::{GROUP_NAME_BYTES_MAX, GroupName};

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// Version, name length, and all fields of fixed size but the checksum.
const FIXED_BYTES: usize = 2 + 16 + 4 + 6 * 8 + 4;

/// Longest token that decodes, bytes.
pub const TOKEN_BYTES_MAX: usize = FIXED_BYTES + GROUP_NAME_BYTES_MAX + CHECKSUM_BYTES;

/// The token as a client gets it.
pub fn encode(token: &AckToken) -> Bytes {
    let group = token.group.as_str().as_bytes();
    let mut to = BytesMut::with_capacity(TOKEN_BYTES_MAX);
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
    let checksum = crc32fast::hash(&to);
    to.put_u32_le(checksum);
    to.freeze()
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
    };
    (from.is_empty() && read.first <= read.last).then_some(read)
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
    fn a_token_with_any_bit_flipped_or_any_byte_missing_is_refused() {
        let good = encode(&sample("email"));
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), Err(EdgeRefusal::AckTokenInvalid), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "length {length}");
        }
        assert!(decode(&[&good[..], b"x"].concat()).is_err());
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
        later[0] = 2;
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
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            content in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            drop(decode(&content));
            drop(decode(&sealed(&content)));
        }
    }
}
