//! Why the body of a request did not arrive.

use pronghorn_h1::Refusal;
use thiserror::Error;

/// Why a body did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BodyError {
    /// The client's: broken framing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The client's: too slow.
    #[error("the body came too slowly")]
    TooSlow,
    /// The client's: it is not in the coding that it claims to be in.
    #[error("the body is no {0}, or not all of it")]
    Malformed(&'static str),
    /// The client's: without its coding it is longer than this.
    #[error("the body is too large without its coding: at most {0} bytes are taken")]
    TooLarge(u64),
    /// The client left.
    #[error("the client left in the middle of the body")]
    Gone,
}
