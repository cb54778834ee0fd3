//! A bounded reader of one message's fields: nothing is allocated, nothing is trusted.

use super::codec::Malformed;

/// Deepest nesting of unknown groups that is passed over.
const GROUP_DEPTH_MAX: u32 = 32;

/// One field as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// From 1.
    pub number: u32,
    /// What it holds.
    pub value: Value<'a>,
}

/// What a field holds, by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Integers, booleans, enums.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Text, bytes, messages, packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// A group, passed over.
    Group,
}

impl<'a> Field<'a> {
    /// The value of an `int64` field.
    pub fn int64(&self) -> Result<i64, Malformed> {
        match self.value {
            // Two's complement is what the wire format says.
            Value::Varint(value) => Ok(value.cast_signed()),
            Value::Fixed64(_) | Value::Bytes(_) | Value::Fixed32(_) | Value::Group => {
                Err(self.wrong_type())
            }
        }
    }

    /// The value of an `int32` or enum field: as every reader does, the upper half is dropped.
    pub fn int32(&self) -> Result<i32, Malformed> {
        let [a, b, c, d, ..] = self.int64()?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }

    /// The content of a `bytes` or message field.
    pub fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) | Value::Group => {
                Err(self.wrong_type())
            }
        }
    }

    /// The content of a `string` field.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_utf8| {
            Malformed::new(format!("field {} is text that is not UTF-8", self.number))
        })
    }

    fn wrong_type(&self) -> Malformed {
        Malformed::new(format!("field {} has a wrong wire type", self.number))
    }
}

/// The fields of one message, in the order of the wire.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of the message that `bytes` is.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; nothing at the end.
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.array()?),
            2 => Value::Bytes(self.prefixed()?),
            3 => {
                self.skip_group(number)?;
                Value::Group
            }
            5 => Value::Fixed32(self.array()?),
            other => return Err(Malformed::new(format!("wire type {other} is not one"))),
        };
        Ok(Some(Field { number, value }))
    }

    fn key(&mut self) -> Result<(u32, u32), Malformed> {
        let key = u32::try_from(self.varint()?)
            .map_err(|_too_large| Malformed::new(String::from("a field number is too large")))?;
        let (number, wire_type) = (key >> 3, key & 7);
        if number == 0 {
            return Err(Malformed::new(String::from("field number 0 is not one")));
        }
        Ok((number, wire_type))
    }

    /// At most ten bytes, of which the tenth is 0 or 1.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            if index == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 {
            truncated()
        } else {
            overlong()
        })
    }

    fn prefixed(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_too_large| truncated())?;
        let (content, rest) = self.rest.split_at_checked(length).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(content)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or_else(truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    /// Groups are not part of the contract; one in an unknown field is passed over, not followed.
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(innermost) = open.last().copied() {
            let (number, wire_type) = self.key()?;
            match wire_type {
                0 => drop(self.varint()?),
                1 => drop(self.array::<8>()?),
                2 => drop(self.prefixed()?),
                3 if open.len() < GROUP_DEPTH_MAX as usize => open.push(number),
                3 => return Err(Malformed::new(String::from("groups are nested too deep"))),
                4 if number == innermost => drop(open.pop()),
                4 => return Err(Malformed::new(String::from("a group ends as another"))),
                5 => drop(self.array::<4>()?),
                other => return Err(Malformed::new(format!("wire type {other} is not one"))),
            }
        }
        Ok(())
    }
}

fn truncated() -> Malformed {
    Malformed::new(String::from("the message ends inside a field"))
}

fn overlong() -> Malformed {
    Malformed::new(String::from("a number is longer than ten bytes"))
}
