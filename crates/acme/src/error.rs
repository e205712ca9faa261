//! Why there is no certificate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_client::ClientError;
use thiserror::Error;

/// An order that brought no certificate, or one that can't be kept.
#[derive(Debug, Error)]
pub enum AcmeError {
    #[error("`{0}` is no address of an authority: it begins with `https://`")]
    Address(String),
    #[error("{url} can't be reached")]
    Unreached { url: String, source: ClientError },
    /// The authority's answer.
    #[error("{url} answers {status}: {detail}")]
    Refused {
        url: String,
        status: u16,
        /// The last part of its name, as in `rateLimited`.
        kind: String,
        detail: String,
        retry_after: Option<Duration>,
    },
    #[error("{url} gives an answer that is not of ACME: {what}")]
    Strange { url: String, what: &'static str },
    #[error("the authority offers no challenge `{challenge}` for `{name}`")]
    NoChallenge {
        name: String,
        challenge: &'static str,
    },
    #[error("the authority could not verify `{name}` by `{challenge}`: {detail}")]
    Unverified {
        name: String,
        challenge: &'static str,
        detail: String,
    },
    #[error(
        "the authority found no record for `{name}` in DNS: {detail}. It needs this one, once, and \
         `pronghorn reload` tries again: {record}"
    )]
    NoRecord {
        name: String,
        /// As a file of a zone has it.
        record: String,
        detail: String,
    },
    #[error(
        "the authority offers no profile `{profile}`: `http.ssl.acme.profile` takes `{offered}`"
    )]
    NoProfile { profile: String, offered: String },
    #[error("the order is not fulfilled: {0}")]
    Unfulfilled(String),
    #[error("the order took longer than {} s", .0.as_secs())]
    Slow(Duration),
    #[error(
        "the certificate holds from {from} to {to} (seconds since 1970), and the clock of this \
         machine says {now}: set the clock"
    )]
    Clock { from: u64, to: u64, now: u64 },
    #[error("the authority gives a certificate that can't be used")]
    Unusable(#[source] rustls::Error),
    #[error("the authority gives a certificate that is not for `{0}`")]
    OtherName(String),
    #[error("no key can be made: {0}")]
    Key(String),
    #[error("`{}` can't be {what}", .path.display())]
    File {
        path: PathBuf,
        what: &'static str,
        source: io::Error,
    },
}

impl AcmeError {
    /// How long the authority wants no further order.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether another authority may do what this one does not do now.
    pub(crate) fn is_trouble_of_authority(&self) -> bool {
        match self {
            Self::Unreached { .. } | Self::Strange { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Whether the authority has forgotten the account.
    pub(crate) fn is_account_gone(&self) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == "accountDoesNotExist")
    }
}
