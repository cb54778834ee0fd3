//! What the durable state promises, machine by machine and as a whole.

mod admission;
mod admission_model;
mod admission_site;
mod appends;
mod codec;
mod dead_letters;
mod decide;
mod delays;
mod derived;
mod groups;
mod message_id_model;
mod message_ids;
mod producers;
mod properties;
mod replay_ends;
mod replay_kinds;
mod replay_model;
mod replay_world;
mod replays;
mod request_ids;
mod rounds;
mod sample;
mod settlement_model;
mod settlements;
mod snapshot;
mod topics;
