//! Certificates from an authority that speaks ACME (RFC 8555): ordered, kept and renewed.
//!
//! - [`AcmeSettings`]: the section `http.ssl.acme`.
//! - [`Acme`]: the certificates of all names, and the tasks that keep them fresh.
//! - `plan`: when a certificate is ordered; pure.
//! - `order`: one order, from its names to a certificate.
//! - `api`, `jose`: signed requests to an authority.
//! - `challenge`: answers by which an authority sees whose a name is.
//! - `renewal_info`: when an authority wants a certificate to be renewed.
//! - `storage`: what is kept on the disk.
//! - `import`: certificates that RoadRunner has fetched.
//! - `der`: what has to be known of a certificate.
//!
//! Certificates go to a [`Store`](pronghorn_serve::Store), from which handshakes take them.

#![forbid(unsafe_code)]

mod acme;
mod api;
mod challenge;
mod der;
mod error;
mod import;
mod jose;
mod order;
mod plan;
mod renewal_info;
mod settings;
mod storage;

pub use acme::Acme;
pub use challenge::Challenge;
pub use error::AcmeError;
pub use settings::{AcmeSettings, Directory, Domain};
