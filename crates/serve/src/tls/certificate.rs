//! One certificate with its key, from two files.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::read_linked;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use super::diagnosis::{self, Wanted};

/// Long chains have some ten kilobytes.
const LONGEST_FILE: u64 = 1 << 20;

/// The mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, then those that lead to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM without a passphrase.
    pub key: PathBuf,
}

impl Pair {
    /// With paths that begin in this directory.
    #[must_use]
    pub fn in_directory(&self, directory: &Path) -> Self {
        Self {
            certificate: directory.join(&self.certificate),
            key: directory.join(&self.key),
        }
    }

    /// The same of several.
    #[must_use]
    pub fn all_in(pairs: &[Self], directory: &Path) -> Vec<Self> {
        let pairs = pairs.iter().map(|pair| pair.in_directory(directory));
        pairs.collect()
    }
}

/// The operator's: a pair that can't be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("cannot read `{}`: {cause}", .path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("`{}` is longer than {LONGEST_FILE} bytes: it is no file of certificates", .0.display())]
    TooLong(PathBuf),
    #[error("there is no {wanted} in `{}`: {what}\nhint: {hint}", .path.display())]
    Nothing {
        path: PathBuf,
        wanted: &'static str,
        /// The thing that is there instead.
        what: String,
        hint: String,
    },
    #[error("the private key in `{}` {what}\nhint: {hint}", .path.display())]
    Unsuitable {
        path: PathBuf,
        what: String,
        hint: &'static str,
    },
    #[error(
        "the private key in `{path}` has a passphrase, and there is nobody to ask for it\nhint: `openssl pkey -in {path} -out new.key` writes one without",
        path = .0.display()
    )]
    Encrypted(PathBuf),
    #[error("`{}` is broken: {cause}", .path.display())]
    Broken { path: PathBuf, cause: rustls::Error },
    #[error(
        "the key in `{}` is not that of the certificate in `{}`\nhint: the first certificate of the file has to be the \
         site's own, and those of authorities follow it; or one of the files is of another certificate",
        .0.key.display(), .0.certificate.display()
    )]
    Mismatch(Pair),
}

/// A pair as it is used.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The names that it is for, in lower case; may begin with `*.`.
    pub(super) names: Vec<String>,
}

impl Certificate {
    pub(super) fn load(pair: &Pair) -> Result<Self, CertificateError> {
        let chain = certificates(&pair.certificate)?;
        let broken = |path: &Path| {
            let path = path.to_owned();
            move |cause| CertificateError::Broken { path, cause }
        };
        let key = private_key(&pair.key)?;
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(|cause| {
            let path = pair.key.clone();
            match diagnosis::of_key(key.secret_der()) {
                Some((what, hint)) => CertificateError::Unsuitable { path, what, hint },
                None => CertificateError::Broken { path, cause },
            }
        })?;
        let names = names(&chain[0]).map_err(broken(&pair.certificate))?;
        let key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(CertificateError::Mismatch(pair.clone()))
            }
            _ => Ok(Self {
                key: Arc::new(key),
                names,
            }),
        }
    }
}

/// The certificates in a file, of which there is one at least.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| nothing(path, &text, Wanted::Certificate))
}

/// The lists of revoked certificates in a file, of which there is one at least.
pub(super) fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
    let text = read(path)?;
    CertificateRevocationListDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|lists| !lists.is_empty())
        .ok_or_else(|| nothing(path, &text, Wanted::RevocationList))
}

fn nothing(path: &Path, text: &[u8], wanted: Wanted) -> CertificateError {
    let (what, hint) = diagnosis::of_file(path, text, wanted);
    CertificateError::Nothing {
        path: path.to_owned(),
        wanted: wanted.name(),
        what,
        hint,
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        if memchr::memmem::find(&text, b"ENCRYPTED").is_some() {
            CertificateError::Encrypted(path.to_owned())
        } else {
            nothing(path, &text, Wanted::Key)
        }
    })
}

pub(super) fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, rustls::Error> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding))?;
    Ok(parsed
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect())
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    match read_linked(path, LONGEST_FILE) {
        Ok(mut text) => {
            // Editors put a byte order mark there, behind which no reader of PEM finds a beginning.
            if text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len());
            }
            Ok(text)
        }
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(CertificateError::TooLong(path.to_owned()))
        }
        Err(cause) => Err(CertificateError::Unreadable {
            path: path.to_owned(),
            cause,
        }),
    }
}

/// Marks by which files are seen to be others than before. Looks through symbolic links, which is
/// how certbot and Kubernetes exchange them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp(Vec<Option<FileStamp>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    modified: (i64, i64),
    /// Other permissions change nothing else.
    changed: (i64, i64),
    len: u64,
}

impl Stamp {
    pub(super) fn of_pair(pair: &Pair) -> Self {
        Self::of(&[&pair.certificate, &pair.key])
    }

    pub(super) fn of(files: &[&Path]) -> Self {
        let stamps = files.iter().map(|path| {
            let file = std::fs::metadata(path).ok()?;
            Some(FileStamp {
                inode: (file.dev(), file.ino()),
                modified: (file.mtime(), file.mtime_nsec()),
                changed: (file.ctime(), file.ctime_nsec()),
                len: file.len(),
            })
        });
        Self(stamps.collect())
    }
}

/// Whether files have to be read again.
#[derive(Debug, Clone)]
pub(super) struct ReadState {
    /// The files whose content is in use.
    used: Stamp,
    /// The last attempt, if it failed, and its error.
    failed: Option<(Stamp, String)>,
}

impl ReadState {
    /// `used` is from before the files were read: what changes meanwhile is read again.
    pub(super) const fn new(used: Stamp) -> Self {
        Self { used, failed: None }
    }

    /// After a failure they are read each time: a file system can recover without a trace in the
    /// marks.
    pub(super) fn is_due(&self, now: &Stamp) -> bool {
        self.failed.is_some() || *now != self.used
    }

    /// Notes how reading went. False where it failed as before, which was told.
    pub(super) fn note<T>(&mut self, read_at: Stamp, result: &Result<T, CertificateError>) -> bool {
        match result {
            Ok(_) => {
                *self = Self::new(read_at);
                true
            }
            Err(error) => {
                let failed = Some((read_at, error.to_string()));
                let is_news = self.failed != failed;
                self.failed = failed;
                is_news
            }
        }
    }
}
