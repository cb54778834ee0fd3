//! The real program against a broker that is the real program too.

#![expect(clippy::disallowed_methods, reason = "files that the program is given")]

mod dead_letters;
mod groups;
mod records;
mod running;
mod serve;
mod settings;
mod topics;
mod workers;
