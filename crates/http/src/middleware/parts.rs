//! The parts that each middleware is made from, and why it can't be made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_plugin_api::Finding;
use pronghorn_serve::Addresses;
use pronghorn_trace::Recorder;
use thiserror::Error;

use crate::basic_auth::{self, Guards, Unreadable};
use crate::files::FileCaches;
use crate::settings::HttpSettings;

/// The parts that middleware is made from.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub settings: &'a HttpSettings,
    /// Relative paths begin here.
    pub folder: &'a Path,
    /// The port to which requests without TLS are sent, if there is a listener with TLS.
    pub https_port: Option<u16>,
    /// Where HTTP/3 is spoken.
    pub http3_ports: &'a [u16],
    /// Of clients, for requests that come through proxies.
    pub addresses: &'a Arc<Addresses>,
    /// Where files are made known that can be forgotten.
    pub(crate) file_caches: &'a FileCaches,
    /// The guards of routes that ask for a password.
    pub(crate) guards: &'a Guards,
    /// None while nobody wants traces.
    pub recorder: Option<&'a Arc<Recorder>>,
}

/// Why middleware can't be made. The operator's: what its section names is not there, or may not be
/// used.
#[derive(Debug, Error)]
#[error("`{key}` names `{}`, which can't be used", path.display())]
pub struct Unusable {
    /// The key with its path, `http.static.dir` for instance.
    pub key: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl Unusable {
    pub(crate) fn users(Unreadable { path, source }: Unreadable) -> Self {
        Self {
            key: basic_auth::KEY,
            path,
            source,
        }
    }

    /// The same before the start.
    pub(crate) fn finding(&self) -> Finding {
        let message = format!(
            "names `{}`, which can't be used: {}",
            self.path.display(),
            self.source
        );
        let hint = "the server does not start without it: create it, or name another one";
        Finding::missing(self.key, message, hint)
    }
}
