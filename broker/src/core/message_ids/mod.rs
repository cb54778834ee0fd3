//! Message ids: a second append of the same id to a topic, within the topic's window, appends
//! nothing and is answered with where the first one lies.
//!
//! A request is looked through when it is sequenced: records that were appended before are taken
//! out of its batch, so that offsets stay dense, and the command says where the first ones lie.
//! Apply takes the command's word, and asserts what it can. Ids are kept as 128 bits of a
//! cryptographic hash, so that nobody can make two ids that pass for one.

mod id_hash;
mod ids;
mod sorting;
mod window;
mod without;

pub use id_hash::IdHash;
pub(super) use ids::{IdsSnapshot, KEPT_BYTES};
pub use ids::{MESSAGE_IDS_ALL_MAX, MESSAGE_IDS_MAX, MessageIds};
pub use sorting::{PartIds, Repeated};
pub(super) use sorting::{RoundIds, note_ids};
pub use window::FirstAppend;
