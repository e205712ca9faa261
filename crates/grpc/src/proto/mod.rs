//! The names in a `.proto` file: its package, its services and their methods, its imports.
//!
//! No types are looked at and no import has to be there, so that files are read which a compiler
//! would refuse: every edition, and options that nobody here knows.

mod scan;
mod tokens;

pub(crate) use scan::{Method, ProtoFile, scan};
pub(crate) use tokens::SyntaxError;
