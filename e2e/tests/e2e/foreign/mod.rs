//! Workers of other packages, over Goridge frames: the stand-in of `fixtures/foreign`, which does on the wire what the
//! official packages do.

mod configurations;
pub(crate) mod serving;
