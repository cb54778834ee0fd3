//! What the durable state promises, machine by machine and as a whole.

mod appends;
mod codec;
mod decide;
mod groups;
mod producers;
mod properties;
mod request_ids;
mod sample;
mod snapshot;
mod topics;
