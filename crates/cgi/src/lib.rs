//! What a script is told and what it answers (CGI/1.1, RFC 3875), for every way to run one. Bytes
//! to types and back.
//!
//! Does no I/O and knows no clock and no process.
//!
//! - [`Site`]: which script answers for a path.
//! - [`Variables`]: what it is told of the request.
//! - [`Environment`]: the same for a program of its own.
//! - [`Head`]: how its answer begins.
//! - [`fastcgi`]: all of that as records.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod environment;
pub mod fastcgi;
pub mod path;
mod reply;
mod site;
pub mod variables;

pub use environment::Environment;
#[doc(hidden)]
pub use reply::fuzz_reply;
pub use reply::{BadReply, FIELDS, HEAD, Head, HeadReader, Kind, Lines};
#[doc(hidden)]
pub use site::fuzz_site;
pub use site::{Answering, Found, Script, Site, Target, is_script};
pub use variables::Variables;
