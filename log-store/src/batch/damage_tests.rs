//! Batches that were damaged on their way, or made to do harm.

use bytes::Bytes;
use proptest::prelude::*;

use crate::batch::samples::{
    PLAIN_MAX, RULES, any_codec, any_samples, decode, encode, raw, reseal, small,
};
use crate::batch::{Codec, HEADER_BYTES, ProducerStamp, Records, validate};

const PRODUCER: ProducerStamp = ProducerStamp {
    id: 1,
    epoch: 0,
    base_sequence: 0,
};

/// What `validate` takes, reading must give whole.
fn check_taken(body: &Bytes) {
    if let Ok(header) = validate(body, &RULES) {
        let records = Records::open(body, PLAIN_MAX).unwrap();
        let count = records.iter().map(Result::unwrap).count();
        assert_eq!(u32::try_from(count).unwrap(), header.record_count);
    }
}

#[test]
fn a_batch_cut_anywhere_is_refused() {
    for codec in Codec::ALL {
        let body = encode(codec, Some(PRODUCER), &small()).unwrap();
        for bytes in 0..body.len() {
            assert!(
                validate(&body.slice(..bytes), &RULES).is_err(),
                "{codec}, {bytes}"
            );
            assert!(Records::open(&body.slice(..bytes), PLAIN_MAX).is_err());
        }
    }
}

#[test]
fn a_batch_cut_anywhere_and_sealed_again_is_refused() {
    for codec in Codec::ALL {
        let whole = encode(codec, Some(PRODUCER), &small()).unwrap();
        for bytes in HEADER_BYTES..whole.len() {
            let mut body = whole[..bytes].to_vec();
            reseal(&mut body);
            assert!(validate(&body.into(), &RULES).is_err(), "{codec}, {bytes}");
        }
    }
}

#[test]
fn bytes_behind_the_records_are_refused_also_when_sealed() {
    for codec in Codec::ALL {
        for more in [&[0][..], &[0xff; 3], &[0x04, 0x22, 0x4d, 0x18], &[0; 64]] {
            let whole = encode(codec, Some(PRODUCER), &small()).unwrap();
            let mut body = [&whole[..], more].concat();
            reseal(&mut body);
            assert!(validate(&body.into(), &RULES).is_err(), "{codec}, {more:?}");
        }
    }
}

#[test]
fn every_flipped_bit_is_refused_or_outside_the_checksum_and_harmless() {
    for codec in Codec::ALL {
        let body = encode(codec, Some(PRODUCER), &small()).unwrap();
        for bit in 0..8 * body.len() {
            let byte = bit / 8;
            let mut flipped = body.to_vec();
            flipped[byte] ^= 1 << (bit % 8);
            let flipped = Bytes::from(flipped);
            let outside = byte < 8 || (12..16).contains(&byte);
            assert_eq!(
                validate(&flipped, &RULES).is_ok(),
                outside,
                "{codec}, bit {bit}"
            );
            if outside {
                assert_eq!(decode(&flipped).unwrap(), small());
            }
        }
    }
}

#[test]
fn every_flipped_bit_that_is_sealed_again_is_refused_or_a_batch() {
    for codec in Codec::ALL {
        let body = encode(codec, Some(PRODUCER), &small()).unwrap();
        for bit in 8 * 21..8 * body.len() {
            let mut flipped = body.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            reseal(&mut flipped);
            check_taken(&flipped.into());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn records_of_any_bytes_are_refused_or_a_batch(
        codec in any_codec(),
        count in 1_u32..5,
        records in prop::collection::vec(prop_oneof![any::<u8>(), 0..16_u8], 0..64),
    ) {
        let mut body = raw(count, &records).to_vec();
        body[22] = Codec::ALL.iter().position(|other| *other == codec).unwrap().try_into().unwrap();
        reseal(&mut body);
        check_taken(&body.into());
    }

    #[test]
    fn a_batch_with_some_bytes_changed_and_sealed_again_is_refused_or_a_batch(
        codec in any_codec(),
        samples in any_samples(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = encode(codec, None, &samples).unwrap().to_vec();
        let sealed = body.len() - 21;
        for (place, byte) in changes {
            body[21 + place.index(sealed)] = byte;
        }
        reseal(&mut body);
        check_taken(&body.into());
    }

    #[test]
    fn any_bytes_at_all_are_judged_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..128),
    ) {
        prop_assert!(validate(&bytes.into(), &RULES).is_err());
    }
}
