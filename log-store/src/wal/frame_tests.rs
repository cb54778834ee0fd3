use proptest::prelude::*;

use super::*;

const FOLDER: FolderId = FolderId([7; 16]);
const POSITION: u64 = 8192;

fn chain() -> Chain {
    Chain::new(FOLDER, 3, 9)
}

fn any_bytes(bytes_max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..bytes_max).prop_map(Bytes::from)
}

fn any_place() -> impl Strategy<Value = Place> {
    (any::<[u8; 16]>(), any::<[u32; 4]>(), 0..=Offset::MAX.get()).prop_map(
        |(topic, [partition, position, bytes, checksum], segment)| Place {
            partition: PartitionId {
                topic: TopicId(topic),
                partition,
            },
            segment: Offset::new(segment).unwrap(),
            position,
            bytes,
            checksum,
        },
    )
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let bulk = prop_oneof![
        any_bytes(200).prop_map(Bulk::Inline),
        any_place().prop_map(Bulk::Placed)
    ];
    let kind = prop_oneof![Just(FrameKind::Command), Just(FrameKind::Lazy)];
    (kind, any_bytes(100), prop::collection::vec(bulk, 0..5)).prop_map(|(kind, head, bulk)| Frame {
        kind,
        head,
        bulk,
    })
}

fn place(frame: &Frame) -> FramePlace {
    FramePlace {
        position: POSITION,
        previous: 4096,
        sequence: Sequence::new(50),
        durable: Sequence::new(40),
        payload_bytes: payload_bytes(frame).unwrap(),
    }
}

/// The bytes of a frame as they lie in the file, without what fills it up.
fn written(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, place(frame), &chain(), &mut bytes);
    bytes.extend_from_slice(&frame.head);
    inline(frame).for_each(|batch| bytes.extend_from_slice(batch));
    bytes
}

fn read(bytes: &[u8], chain: &Chain, position: u64) -> Option<(FrameHeader, ReadFrame)> {
    let header = FrameHeader::found(bytes, chain, position)?;
    let payload = Bytes::copy_from_slice(bytes.get(FRAME_HEADER_BYTES..)?);
    Some((header, header.open(&payload)?))
}

fn sample() -> Frame {
    Frame {
        kind: FrameKind::Command,
        head: Bytes::from_static(b"command"),
        bulk: vec![
            Bulk::Inline(Bytes::from_static(b"batch")),
            Bulk::Placed(Place {
                partition: PartitionId {
                    topic: TopicId([5; 16]),
                    partition: 6,
                },
                segment: Offset::new(70).unwrap(),
                position: 80,
                bytes: 90,
                checksum: 100,
            }),
        ],
    }
}

proptest! {
    #[test]
    fn a_frame_reads_back_as_it_was_written(frame in any_frame()) {
        let bytes = written(&frame);
        let size = payload_bytes(&frame).unwrap();
        prop_assert_eq!(bytes.len() as u64, FRAME_HEADER_BYTES as u64 + u64::from(size));
        let (header, back) = read(&bytes, &chain(), POSITION).unwrap();
        prop_assert_eq!(header.previous, 4096);
        prop_assert_eq!(header.durable, Sequence::new(40));
        let Frame { kind, head, bulk } = frame;
        prop_assert_eq!(back, ReadFrame { sequence: Sequence::new(50), kind, head, bulk });
    }

    #[test]
    fn any_payload_whatever_is_taken_apart_or_refused(
        payload in any_bytes(300),
        count in 0..WAL_FRAME_BULKS_MAX,
    ) {
        if let Some((head, bulk)) = open_payload(&payload, count) {
            let frame = Frame { kind: FrameKind::Lazy, head, bulk };
            prop_assert_eq!(payload_bytes(&frame).unwrap() as usize, payload.len());
        }
    }
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_frame_is_noticed() {
    let whole = written(&sample());
    for at in 0..whole.len() {
        assert!(
            read(&whole[..at], &chain(), POSITION).is_none(),
            "cut at {at}"
        );
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(
                read(&bytes, &chain(), POSITION).is_none(),
                "bit {bit} of byte {at}"
            );
            if at < FRAME_HEADER_BYTES {
                let found = FrameHeader::at(&bytes, &chain(), POSITION, Sequence::new(50));
                assert_eq!(found, HeaderAt::Broken, "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn a_frame_is_valid_in_its_own_place_only() {
    let bytes = written(&sample());
    assert!(read(&bytes, &chain(), POSITION).is_some());
    assert!(read(&bytes, &chain(), POSITION + 8).is_none());
    let others = [
        Chain::new(FolderId([8; 16]), 3, 9),
        Chain::new(FOLDER, 4, 9),
        Chain::new(FOLDER, 3, 10),
    ];
    for other in others {
        assert!(read(&bytes, &other, POSITION).is_none());
        let found = FrameHeader::at(&bytes, &other, POSITION, Sequence::new(51));
        let same_tag = other.generation == 9;
        assert_eq!(
            found,
            if same_tag {
                HeaderAt::Broken
            } else {
                HeaderAt::Other
            }
        );
    }
    assert_eq!(
        FrameHeader::at(&[0; 48], &chain(), POSITION, Sequence::new(1)),
        HeaderAt::Other
    );
}

#[test]
fn a_frame_over_a_limit_is_refused_before_it_is_written() {
    let empty = Frame {
        kind: FrameKind::Lazy,
        head: Bytes::new(),
        bulk: Vec::new(),
    };
    assert_eq!(payload_bytes(&empty), Some(0));
    let largest = Bytes::from(vec![0; WAL_FRAME_BYTES_MAX as usize]);
    let frame = Frame {
        head: largest.clone(),
        ..empty.clone()
    };
    assert_eq!(payload_bytes(&frame), Some(WAL_FRAME_BYTES_MAX));
    let frame = Frame {
        bulk: vec![Bulk::Inline(largest)],
        ..empty.clone()
    };
    assert_eq!(payload_bytes(&frame), None);
    let many = vec![Bulk::Inline(Bytes::new()); WAL_FRAME_BULKS_MAX as usize];
    let frame = Frame {
        bulk: many.clone(),
        ..empty.clone()
    };
    assert!(payload_bytes(&frame).is_some());
    let frame = Frame {
        bulk: [many, vec![Bulk::Inline(Bytes::new())]].concat(),
        ..empty
    };
    assert_eq!(payload_bytes(&frame), None);
}

#[test]
fn a_list_that_promises_more_than_there_is_is_refused() {
    let mut payload = vec![FORM_INLINE, 0, 0, 0, 10, 0, 0, 0];
    payload.extend_from_slice(&[1; 9]);
    assert!(open_payload(&payload.clone().into(), 1).is_none());
    payload.push(1);
    assert!(open_payload(&payload.clone().into(), 1).is_some());
    assert!(open_payload(&payload.into(), 2).is_none());
}
