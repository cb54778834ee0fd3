//! What can be wrong with a record batch. The sentences are shown to whoever sent it.

use crate::batch::Codec;

/// Why a batch is refused, or why it cannot be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A field of the batch header holds what it must not.
    #[error("batch {field} is {value}: {rule}")]
    Header {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: i64,
        /// What it must hold.
        rule: &'static str,
    },
    /// The bytes are not those that the producer sealed.
    #[error("batch checksum is {stated:#010x}, but its bytes give {computed:#010x} (CRC-32C)")]
    Checksum {
        /// As the header says.
        stated: u32,
        /// Over the bytes from the attributes on.
        computed: u32,
    },
    /// The compressed records are not a stream of their codec, or could not be made one.
    #[error("batch records are no valid {codec} stream: {reason}")]
    Compression {
        /// As the attributes say.
        codec: Codec,
        /// What the codec says.
        reason: String,
    },
    /// A record's bytes do not follow the format.
    #[error("record {record}: {fault}")]
    Record {
        /// Its place in the batch, from 0.
        record: u32,
        /// What is wrong.
        fault: RecordFault,
    },
    /// More of something than is allowed.
    #[error("{}{what} {value} above the limit of {max}", At(*.record))]
    Limit {
        /// The record's place in the batch, from 0, where one record is meant.
        record: Option<u32>,
        /// What is counted, with its unit.
        what: &'static str,
        /// How much there is; at least so much where counting stopped.
        value: u64,
        /// How much may be.
        max: u64,
    },
    /// A header name that only the broker may write.
    #[error("record {record}: header name {name:?} is reserved")]
    ReservedHeader {
        /// The record's place in the batch, from 0.
        record: u32,
        /// The name, cut to 64 characters.
        name: String,
    },
}

/// What is wrong with the bytes of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The bytes end within a field.
    #[error("the bytes end within its {field}")]
    Cut {
        /// The field's name.
        field: &'static str,
    },
    /// A varint that is too long for its field, or longer than it need be.
    #[error("its {field} is not a canonical varint")]
    Varint {
        /// The field's name.
        field: &'static str,
    },
    /// A field holds what it must not.
    #[error("its {field} is {value}: {rule}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: i64,
        /// What it must hold.
        rule: &'static str,
    },
    /// Bytes follow the last header within the record's length.
    #[error("{bytes} bytes follow its last header")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A header name that is not UTF-8.
    #[error("the name of its header {header} is not UTF-8")]
    HeaderName {
        /// The header's place in the record, from 0.
        header: usize,
    },
}

/// Names the record in front of a sentence, if one is meant.
struct At(Option<u32>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(record) => write!(f, "record {record}: "),
            None => Ok(()),
        }
    }
}
