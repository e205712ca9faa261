//! The length of a reply's body, against the one that its script announced.
//!
//! A body that is too short must not look whole: a download would be kept, and cached. nginx cuts
//! its client off. A body that is too long is the server's to cut, or to announce as it is.

use std::fmt;

use pronghorn_cgi::Head;
use pronghorn_pool::Payload;

/// How much of a body has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    announced: Option<u64>,
    came: u64,
}

/// A body that ended before its announced length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooShort {
    came: u64,
    announced: u64,
}

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { came, announced } = self;
        write!(
            f,
            "the script's answer ended after {came} of the {announced} bytes that its \
             Content-Length announced: the client is cut off"
        )
    }
}

impl Measured {
    /// The beginning of a reply with this head.
    pub(crate) fn of(head: &Head) -> Self {
        // These have no body, whatever they announce.
        let has_body = !matches!(head.reply.status, 204 | 205 | 304);
        Self {
            announced: head.length.filter(|_| has_body),
            came: 0,
        }
    }

    /// The beginning of one that nobody gets.
    pub(crate) const fn of_none() -> Self {
        Self {
            announced: None,
            came: 0,
        }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.came = self.came.saturating_add(bytes as u64);
    }

    /// Judges a body that has ended. An answer to HEAD announces what it leaves out.
    pub(crate) fn check(self, payload: &dyn Payload) -> Result<(), TooShort> {
        let came = self.came;
        match self.announced {
            Some(announced) if came < announced && !is_head(payload) => {
                Err(TooShort { came, announced })
            }
            _ => Ok(()),
        }
    }
}

fn is_head(payload: &dyn Payload) -> bool {
    let details = payload.details();
    details.is_some_and(|details| details.method == "HEAD")
}
