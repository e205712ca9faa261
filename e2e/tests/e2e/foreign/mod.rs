//! Workers of other packages, over Goridge frames: the stand-in of `fixtures/foreign`, which does
//! on the wire what the official packages do.

mod configurations;
mod misbehaviour;
pub(crate) mod serving;
