//! What a program is started with, and why it could not be.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use pronghorn_cgi::Environment;
use pronghorn_process::{SpawnError, Stream};
use rustix::io::Errno;

use pronghorn_pool::Body;

/// A program to be started for one call.
pub(super) struct Program {
    pub(super) file: PathBuf,
    /// Where it lies, and runs.
    pub(super) folder: PathBuf,
    /// All of it: nothing is inherited.
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// `besides` is overruled by what the request says.
    pub(super) fn of(block: &[u8], besides: &[(OsString, OsString)]) -> Option<Self> {
        let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let told = Environment::of(block);
        let file = PathBuf::from(owned(told.program()?));
        let folder = file.parent()?.to_owned();
        let mut environment: Vec<_> = told
            .variables()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect();
        if let Some(path) = told.path_translated() {
            environment.push(("PATH_TRANSLATED".into(), OsString::from_vec(path)));
        }
        let is_told = |name: &OsString| environment.iter().any(|(told, _)| told == name);
        let besides = besides.iter().filter(|(name, _)| !is_told(name)).cloned();
        let besides: Vec<_> = besides.collect();
        environment.extend(besides);
        Some(Self {
            file,
            folder,
            environment,
        })
    }
}

/// What a program reads, and what has to be written there.
pub(super) fn stdin_of(body: Body) -> std::io::Result<(Stream, Bytes)> {
    Ok(match body {
        Body::Empty | Body::Stream(_) => (Stream::Null, Bytes::new()),
        Body::Bytes(bytes) if bytes.is_empty() => (Stream::Null, bytes),
        Body::Bytes(bytes) => (Stream::Pipe, bytes),
        Body::File(file) => {
            let mut content = file.file();
            // All of it was written by this descriptor, whose place is its end.
            std::io::Seek::rewind(&mut content)?;
            (
                Stream::File(OwnedFd::from(content.try_clone()?)),
                Bytes::new(),
            )
        }
    })
}

pub(super) fn cannot_start(file: &Path, error: &SpawnError) -> String {
    let file = file.display();
    let (why, hint) = match error {
        SpawnError::NotFound { .. } => (
            "it, or the program that its `#!` line names, is not there".to_owned(),
            "look at its first line, whose end must be a line feed alone",
        ),
        SpawnError::Failed { source, .. } => {
            let hint = match Errno::from_io_error(source) {
                Some(Errno::ACCESS | Errno::PERM) => {
                    "`chmod +x` it; the pool's user must be able to reach and read it"
                }
                Some(Errno::NOEXEC) => {
                    "it has to begin with `#!` and the path of an interpreter, or be a binary for this machine"
                }
                _ if source.kind() == ErrorKind::ArgumentListTooLong => {
                    "the request's header, or what the server's environment adds to it, is longer \
                     than an environment may be"
                }
                _ => "start it by hand to see more",
            };
            (source.to_string(), hint)
        }
        SpawnError::NoFolder(_) | SpawnError::Gone => (error.to_string(), "try again"),
    };
    format!("cannot start `{file}`: {why}; hint: {hint}")
}
