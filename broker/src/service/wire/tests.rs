use bytes::BytesMut;
use proptest::prelude::*;
use prost::Message;

use super::{Field, Fields, MessageWriter, Value, bytes_field_len, int_field_len, varint_len};

fn all(bytes: &[u8]) -> Result<Vec<Field<'_>>, super::Malformed> {
    let mut fields = Fields::new(bytes);
    let mut found = Vec::new();
    while let Some(field) = fields.next_field()? {
        found.push(field);
    }
    Ok(found)
}

#[test]
fn every_wire_type_is_read_and_unknown_groups_are_passed_over() {
    let bytes = [
        0x08, 0x96, 0x01, // 1: varint 150
        0x11, 1, 2, 3, 4, 5, 6, 7, 8, // 2: eight bytes
        0x1a, 2, b'h', b'i', // 3: bytes
        0x23, 0x08, 0x01, 0x2b, 0x2c, 0x24, // 4: group with a varint and a group 5
        0x35, 1, 2, 3, 4, // 6: four bytes
    ];
    let values: Vec<Value<'_>> = all(&bytes)
        .unwrap()
        .iter()
        .map(|field| field.value)
        .collect();
    assert_eq!(
        values,
        [
            Value::Varint(150),
            Value::Fixed64([1, 2, 3, 4, 5, 6, 7, 8]),
            Value::Bytes(b"hi"),
            Value::Group,
            Value::Fixed32([1, 2, 3, 4]),
        ]
    );
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    let deep: Vec<u8> = [0x0b].repeat(1000);
    let bad: [&[u8]; 12] = [
        &[0x0f],                                                 // wire type 7
        &[0x0e],                                                 // wire type 6
        &[0x0c],                                                 // a group ends that never began
        &[0x00, 0x00],                                           // field 0
        &[0x08],                                                 // no value
        &[0x08, 0x80],                                           // half a varint
        &[0x0a, 0x05, 1, 2],                                     // cut bytes
        &[0x09, 1, 2, 3],                                        // cut fixed
        &[0x0b, 0x14],                                           // group 1 ends as group 2
        &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], // 65 bits
        &[
            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
        ], // eleven bytes
        &deep,
    ];
    for bytes in bad {
        assert!(all(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_by_whoever_reads_it() {
    let fields = all(&[0x08, 1, 0x12, 1, 0xff]).unwrap();
    assert!(fields[0].bytes().is_err());
    assert!(fields[1].int64().is_err());
    assert!(fields[1].text().is_err(), "not UTF-8");
    assert_eq!(fields[0].int32().unwrap(), 1);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_accept_what_prost_refuses(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let ours = all(&bytes).is_ok();
        let theirs = <() as Message>::decode(&bytes[..]).is_ok();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn what_is_written_has_the_length_foretold_and_reads_the_same(
        number in 1_u32..100,
        value: i64,
        text in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut buffer = BytesMut::new();
        let mut writer = MessageWriter::new(&mut buffer);
        writer.int(number, value);
        writer.present_bytes(number, &text);
        let foretold = int_field_len(number, value) + bytes_field_len(number, text.len());
        prop_assert_eq!(buffer.len(), foretold);
        let fields = all(&buffer).unwrap();
        if value != 0 {
            prop_assert_eq!(fields[0].int64().unwrap(), value);
        }
        prop_assert_eq!(fields.last().unwrap().bytes().unwrap(), &text[..]);
    }
}

#[test]
fn a_varint_takes_one_byte_for_seven_bits() {
    assert_eq!([0, 127, 128, u64::MAX].map(varint_len), [1, 1, 2, 10]);
}
