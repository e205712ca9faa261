//! Certificates and accounts on the disk, below the state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use pronghorn_base::{Trusted, open_plain};
use pronghorn_serve::Managed;
use serde::{Deserialize, Serialize};

use crate::api::Account;
use crate::der::Facts;
use crate::error::AcmeError;
use crate::jose::{AccountKey, sha256};
use crate::plan::{Attempts, Validity};

/// Below the state directory.
const NAME: &str = "certificates";
const ACCOUNTS: &str = "accounts";
/// Longer is none of ours.
const LONGEST_FILE: u64 = 1 << 20;
/// Before the key: where a certificate is from. Readers of PEM skip it.
const FROM: &str = "From: ";

/// A certificate with its key, as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The authority's directory.
    pub(crate) from: String,
    pub(crate) managed: Managed,
    pub(crate) facts: Facts,
}

impl Certificate {
    /// Reads what [`file()`] makes. None where it can't be used.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let first = text.lines().next().unwrap_or_default();
        let managed = Managed::from_pem(text.as_bytes()).ok()?;
        Some(Self {
            from: first.strip_prefix(FROM).unwrap_or_default().to_owned(),
            facts: Facts::of(managed.der())?,
            managed,
        })
    }

    pub(crate) const fn validity(&self) -> Validity {
        Validity {
            not_before: self.facts.not_before,
            not_after: self.facts.not_after,
        }
    }
}

/// A key and its certificates in one text: no crash leaves one without the other.
pub(crate) fn file(from: &str, key: &str, chain: &str) -> String {
    format!("{FROM}{from}\n{key}{chain}")
}

#[derive(Deserialize, Serialize)]
struct KeptAccount {
    url: String,
    key: String,
}

#[derive(Default, Deserialize, Serialize)]
struct KeptAttempts {
    failed: u32,
    last: u64,
    not_before: u64,
}

/// The directory, for its owner alone.
#[derive(Clone, Debug)]
pub(crate) struct Storage(PathBuf);

impl Storage {
    /// Makes it where it is not there. Refuses a place where another user could write.
    pub(crate) fn open(state: &Path) -> Result<Self, AcmeError> {
        let storage = Self(state.join(NAME));
        for path in [storage.0.clone(), storage.0.join(ACCOUNTS)] {
            let made = Trusted::steps_of_server().make_directory(&path, 0o700);
            made.map_err(|source| AcmeError::File {
                path,
                what: "used",
                source,
            })?;
        }
        Ok(storage)
    }

    fn certificate_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{}.pem", file_name(name)))
    }

    /// The certificate for a name; None if there is none.
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<Certificate>, AcmeError> {
        let path = self.certificate_path(name);
        let Some(text) = read(&path)? else {
            return Ok(None);
        };
        let broken = || AcmeError::File {
            path,
            what: "used",
            source: io::Error::other("it is no key with a certificate"),
        };
        Certificate::parse(&text).map(Some).ok_or_else(broken)
    }

    pub(crate) fn keep_certificate(&self, name: &str, text: &str) -> Result<(), AcmeError> {
        replace(&self.certificate_path(name), text)
    }

    /// The account at an authority; None if there is none that can be used.
    pub(crate) fn account(&self, directory: &str) -> Result<Option<Account>, AcmeError> {
        let Some(text) = read(&self.account_path(directory))? else {
            return Ok(None);
        };
        let account = || {
            let kept: KeptAccount = serde_json::from_str(&text).ok()?;
            let key = BASE64.decode(kept.key).ok()?;
            let key = AccountKey::from_pkcs8(&key).ok()?;
            Some(Account { key, url: kept.url })
        };
        Ok(account())
    }

    pub(crate) fn keep_account(&self, directory: &str, account: &Account) -> Result<(), AcmeError> {
        let kept = KeptAccount {
            url: account.url.clone(),
            key: BASE64.encode(account.key.pkcs8()),
        };
        replace(&self.account_path(directory), &json(&kept))
    }

    /// The authority knows it no more.
    pub(crate) fn forget_account(&self, directory: &str) {
        _ = fs::remove_file(self.account_path(directory)); // it would be refused again, and told
    }

    /// Addresses are no names of files.
    fn account_path(&self, directory: &str) -> PathBuf {
        let hash = sha256(directory.as_bytes());
        let number = hash.iter().take(8);
        let number = number.fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        let name = format!("{number:016x}.json");
        self.0.join(ACCOUNTS).join(name)
    }

    /// The failures for a name. What can't be read counts as none.
    pub(crate) fn attempts(&self, name: &str) -> Attempts {
        let text = read(&self.attempts_path(name)).ok().flatten();
        let kept: KeptAttempts = text
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        Attempts {
            failed: kept.failed,
            last: kept.last,
            not_before: kept.not_before,
        }
    }

    /// Keeps them for a server that is started again and again: authorities limit failures.
    pub(crate) fn keep_attempts(&self, name: &str, attempts: Attempts) -> Result<(), AcmeError> {
        let path = self.attempts_path(name);
        if attempts == Attempts::default() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(unwritable(&path, error))
                }
                _ => Ok(()),
            };
        }
        let kept = KeptAttempts {
            failed: attempts.failed,
            last: attempts.last,
            not_before: attempts.not_before,
        };
        replace(&path, &json(&kept))
    }

    fn attempts_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{}.failed", file_name(name)))
    }
}

/// No name of a host has an underscore.
fn file_name(name: &str) -> String {
    name.replace('*', "_")
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

fn unwritable(path: &Path, source: io::Error) -> AcmeError {
    AcmeError::File {
        path: path.to_owned(),
        what: "written",
        source,
    }
}

/// A file of this user's or root's, and nobody else's to read. None where there is none.
fn read(path: &Path) -> Result<Option<String>, AcmeError> {
    let unreadable = |source| AcmeError::File {
        path: path.to_owned(),
        what: "read",
        source,
    };
    let file = match open_plain(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let facts = file.metadata().map_err(unreadable)?;
    let (owner, me) = (facts.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        let why = format!("it belongs to user {owner}, who has its key");
        return Err(unreadable(io::Error::other(why)));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(unreadable(io::Error::other("others may read its key")));
    }
    let text = io::read_to_string(file.take(LONGEST_FILE));
    text.map(Some).map_err(unreadable)
}

/// Writes a whole file in place of another one, which stays where the disk is full.
fn replace(path: &Path, text: &str) -> Result<(), AcmeError> {
    let new = path.with_added_extension("new");
    let written = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {} // one that a crash has left
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    written().map_err(|error| {
        _ = fs::remove_file(&new); // it says nothing more than the error
        unwritable(path, error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use pronghorn_testkit::Directory;

    use super::*;

    fn made(name: &str) -> String {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        file(
            "https://a.example/directory",
            &made.signing_key.serialize_pem(),
            &made.cert.pem(),
        )
    }

    #[test]
    fn what_is_kept_is_for_its_owner_alone_and_comes_back() {
        let state = Directory::new();
        let storage = Storage::open(&state).unwrap();
        assert!(storage.certificate("a.example").unwrap().is_none());
        storage
            .keep_certificate("a.example", &made("a.example"))
            .unwrap();
        let kept = storage.certificate("a.example").unwrap().unwrap();
        assert_eq!(kept.from, "https://a.example/directory");
        assert_eq!(kept.managed.names(), ["a.example"]);
        let account = Account {
            key: AccountKey::generate().unwrap(),
            url: "https://a.example/1".to_owned(),
        };
        storage.keep_account("https://a.example", &account).unwrap();
        let again = storage.account("https://a.example").unwrap().unwrap();
        assert_eq!(again.key.thumbprint(), account.key.thumbprint());
        assert!(storage.account("https://b.example").unwrap().is_none());
        let attempts = Attempts {
            failed: 3,
            last: 2,
            not_before: 1,
        };
        storage.keep_attempts("a.example", attempts).unwrap();
        assert_eq!(storage.attempts("a.example"), attempts);
        let mut open = vec![state.join(NAME)];
        let mut files = 0;
        while let Some(directory) = open.pop() {
            let mode = fs::metadata(&directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                    continue;
                }
                let mode = fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
                files += 1;
            }
        }
        assert_eq!(files, 3);
        storage
            .keep_attempts("a.example", Attempts::default())
            .unwrap();
        assert_eq!(storage.attempts("a.example"), Attempts::default());
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let state = Directory::new();
        let storage = Storage::open(&state).unwrap();
        storage.keep_certificate("a", &made("a")).unwrap();
        let path = storage.certificate_path("a");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let why = storage.certificate("a").unwrap_err();
        let why = pronghorn_base::with_causes(&why);
        assert!(why.ends_with("others may read its key"), "{why}");
    }

    #[test]
    fn a_file_that_can_t_be_written_leaves_the_one_before() {
        let state = Directory::new();
        let storage = Storage::open(&state).unwrap();
        storage.keep_certificate("a", &made("a")).unwrap();
        let before = fs::read(storage.certificate_path("a")).unwrap();
        // As a full disk: the new file can't be made.
        fs::create_dir(storage.0.join("a.pem.new")).unwrap();
        storage.keep_certificate("a", &made("a")).unwrap_err();
        assert_eq!(fs::read(storage.certificate_path("a")).unwrap(), before);
    }
}
