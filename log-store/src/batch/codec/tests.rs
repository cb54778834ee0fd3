use std::io::Write;

use super::Codec;
use crate::batch::BatchError;

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const MIB: usize = 1 << 20;

fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    codec.compress(plain, &mut packed).unwrap();
    packed
}

/// Bytes that compress a little, different in every block.
fn mixed(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3] & 0x3f
    };
    (0..bytes).map(|_| next()).collect()
}

fn broken(codec: Codec, packed: &[u8]) -> String {
    match codec.decompress(packed, 1 << 26) {
        Err(BatchError::Compression {
            codec: told,
            reason,
        }) if told == codec => reason,
        other => panic!("{codec}: {other:?}"),
    }
}

/// How much the stream gave or declared when it was refused.
fn too_much(codec: Codec, packed: &[u8], bytes_max: u64) -> u64 {
    match codec.decompress(packed, bytes_max) {
        Err(BatchError::Limit {
            record: None,
            value,
            max,
            ..
        }) if max == bytes_max => value,
        other => panic!("{codec}: {:?}", other.map(|plain| plain.len())),
    }
}

fn zstd_without_size(plain: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn names_and_attribute_bits_lead_back_to_the_codec() {
    for (bits, codec) in (0..).zip(Codec::ALL) {
        assert_eq!(codec.attributes(), bits);
        assert_eq!(Codec::from_attributes(bits | 0xfff8), Some(codec));
        assert_eq!(Codec::from_name(&codec.to_string()), Some(codec));
    }
    assert_eq!(Codec::from_attributes(5), None);
    assert_eq!(Codec::from_name("brotli"), None);
}

#[test]
fn sizes_around_every_block_come_back_whole() {
    for codec in Codec::ALL {
        for bytes in [0, 1, 100, 32_767, 32_768, 32_769, 65_536, 262_145, 3 * MIB] {
            let plain = mixed(bytes);
            let limit = u64::try_from(bytes).unwrap();
            let back = codec.decompress(&packed(codec, &plain), limit).unwrap();
            assert!(back == plain, "{codec}, {bytes} bytes");
        }
    }
}

#[test]
fn a_stream_is_taken_up_to_the_bound_and_refused_a_byte_beyond() {
    for codec in Codec::ALL {
        let packed = packed(codec, &mixed(100_000));
        assert!(codec.decompress(&packed, 100_000).is_ok());
        assert!(too_much(codec, &packed, 99_999) > 99_999);
        assert!(too_much(codec, &packed, 0) > 0);
    }
}

#[test]
fn a_bomb_is_stopped_at_the_bound() {
    let zeros = vec![0; 64 * MIB];
    for codec in COMPRESSED {
        let bomb = packed(codec, &zeros);
        assert!(bomb.len() < 4 * MIB, "{codec}");
        assert!(too_much(codec, &bomb, 1 << 20) <= 64 << 20);
    }
}

#[test]
fn a_bomb_that_declares_no_size_is_stopped_a_byte_beyond_the_bound() {
    let zeros = vec![0; 64 * MIB];
    let bound = 1 << 20;
    assert_eq!(
        too_much(Codec::Lz4, &packed(Codec::Lz4, &zeros), bound),
        bound + 1
    );
    assert_eq!(
        too_much(Codec::Zstd, &zstd_without_size(&zeros, 17), bound),
        bound + 1
    );
    let mut gzip = packed(Codec::Gzip, &zeros);
    *gzip.last_chunk_mut().unwrap() = 1_000_u32.to_le_bytes();
    assert_eq!(too_much(Codec::Gzip, &gzip, bound), bound + 1);
}

#[test]
fn a_declared_size_beyond_the_bound_is_refused_unread() {
    let size = 1_u64 << 40;
    // A descriptor with a content size, and nothing behind it.
    let lz4 = [
        &[0x04, 0x22, 0x4d, 0x18, 0x68, 0x40][..],
        &size.to_le_bytes(),
    ]
    .concat();
    assert_eq!(too_much(Codec::Lz4, &lz4, 1 << 20), size);
    // A single segment with eight bytes of size, and one empty last block.
    let zstd = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..],
        &size.to_le_bytes(),
        &[1, 0, 0],
    ]
    .concat();
    assert_eq!(too_much(Codec::Zstd, &zstd, 1 << 20), size);
    let gzip = [&[0x1f, 0x8b, 8][..], &u32::MAX.to_le_bytes()].concat();
    assert_eq!(too_much(Codec::Gzip, &gzip, 1 << 20), u32::MAX.into());
    let snappy = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert_eq!(too_much(Codec::Snappy, &snappy, 1 << 20), u32::MAX.into());
}

#[test]
fn a_declared_size_that_so_few_bytes_cannot_give_is_refused_before_room_is_made() {
    let reason = "it declares a size that so few bytes cannot give";
    let size = 50_u32 << 20;
    let wide = u64::from(size).to_le_bytes();
    let lz4 = [&[0x04, 0x22, 0x4d, 0x18, 0x68, 0x40][..], &wide].concat();
    assert_eq!(broken(Codec::Lz4, &lz4), reason);
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &wide, &[1, 0, 0]].concat();
    assert_eq!(broken(Codec::Zstd, &zstd), reason);
    let gzip = [&[0x1f, 0x8b, 8][..], &size.to_le_bytes()].concat();
    assert_eq!(broken(Codec::Gzip, &gzip), reason);
    let snappy = [0x80, 0x80, 0x80, 0x19, 0];
    assert_eq!(broken(Codec::Snappy, &snappy), reason);
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    let plain = mixed(3_000);
    for codec in COMPRESSED {
        let whole = packed(codec, &plain);
        for bytes in 0..whole.len() {
            // A framing without a block is a stream of nothing.
            let nothing = codec == Codec::Snappy && bytes == 16;
            let back = codec.decompress(&whole[..bytes], 1 << 20);
            assert!(
                back.is_err() || (nothing && back == Ok(Vec::new())),
                "{codec}, {bytes}"
            );
        }
    }
}

#[test]
fn a_frame_whose_end_mark_alone_is_missing_is_refused() {
    let whole = packed(Codec::Lz4, b"plain");
    for missing in 1..=4 {
        let reason = broken(Codec::Lz4, &whole[..whole.len() - missing]);
        assert!(!reason.is_empty());
    }
    let zstd = zstd_without_size(&mixed(300_000), 17);
    broken(Codec::Zstd, &zstd[..zstd.len() - 1]);
}

#[test]
fn a_second_stream_behind_the_first_is_refused() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let one = packed(codec, b"plain");
        let reason = broken(codec, &[&one[..], &one].concat());
        assert!(
            reason.starts_with("bytes follow its only"),
            "{codec}: {reason}"
        );
    }
    let one = packed(Codec::Snappy, b"plain");
    broken(Codec::Snappy, &[&one[..], &one].concat());
}

#[test]
fn what_is_no_stream_of_the_codec_is_refused() {
    for codec in COMPRESSED {
        for bytes in [&b""[..], b"plain", &[0; 40], &[0xff; 40]] {
            assert!(
                codec.decompress(bytes, 1 << 20).is_err(),
                "{codec}, {bytes:?}"
            );
        }
    }
}

#[test]
fn a_raw_snappy_block_is_read_too() {
    let plain = mixed(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    assert!(Codec::Snappy.decompress(&raw, 100_000).unwrap() == plain);
    assert_eq!(too_much(Codec::Snappy, &raw, 99_999), 100_000);
}

#[test]
fn snappy_is_written_as_the_java_clients_write_it() {
    let packed = packed(Codec::Snappy, &mixed(40_000));
    assert_eq!(packed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let first = usize::try_from(u32::from_be_bytes(*packed[16..].first_chunk().unwrap())).unwrap();
    assert_eq!(
        snap::raw::decompress_len(&packed[20..20 + first]),
        Ok(32 * 1024)
    );
}

#[test]
fn a_snappy_framing_of_another_version_is_refused() {
    let mut packed = packed(Codec::Snappy, b"plain");
    packed[11] = 2;
    assert_eq!(
        broken(Codec::Snappy, &packed),
        "its framing is not version 1"
    );
}

#[test]
fn snappy_blocks_are_bounded_together() {
    let plain = mixed(3 * 32 * 1024);
    let packed = packed(Codec::Snappy, &plain);
    assert_eq!(too_much(Codec::Snappy, &packed, 70_000), 98_304);
    assert_eq!(too_much(Codec::Snappy, &packed, 40_000), 65_536);
}

#[test]
fn lz4_is_written_in_independent_blocks_since_the_java_clients_read_no_others() {
    let flags = packed(Codec::Lz4, &mixed(300_000))[4];
    assert_eq!(flags & 0b0010_0000, 0b0010_0000);
}

#[test]
fn an_lz4_frame_with_linked_blocks_checksums_and_size_is_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let plain = mixed(300_000);
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_mode(BlockMode::Linked)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(300_000));
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&plain).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(Codec::Lz4.decompress(&packed, 300_000).unwrap() == plain);
    assert_eq!(too_much(Codec::Lz4, &packed, 299_999), 300_000);
}

#[test]
fn an_lz4_frame_of_the_legacy_format_is_refused() {
    let legacy = [&0x184c_2102_u32.to_le_bytes()[..], &[0; 16]].concat();
    assert_eq!(broken(Codec::Lz4, &legacy), "not an LZ4 frame");
}

#[test]
fn a_zstd_frame_without_a_size_is_read_up_to_the_largest_window() {
    let plain = mixed(300_000);
    for window_log in [17, 24] {
        let packed = zstd_without_size(&plain, window_log);
        assert!(Codec::Zstd.decompress(&packed, 300_000).unwrap() == plain);
    }
    broken(Codec::Zstd, &zstd_without_size(&plain, 25));
}
