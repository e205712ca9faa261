//! The local certificate authority of `serve --tls`: made once, for this machine alone.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pronghorn_base::{Trusted, open_plain, read_plain, since_1970};
use pronghorn_config::{Disk, Input};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::arguments::Arguments;
use crate::directories;

/// By it browsers and stores show the authority.
pub(crate) const NAME: &str = "Pronghorn local authority";
/// Longer than a machine is used for development.
const OF_AUTHORITY: Duration = Duration::from_hours(10 * 365 * 24);
/// A certificate is made anew at each start. Some clients take none for longer than 398 days.
const OF_CERTIFICATE: Duration = Duration::from_hours(90 * 24);
/// Clocks differ, and containers start with the one of their host.
const BEFORE_NOW: Duration = Duration::from_hours(24);

/// Key and certificate, in one file, so that there is never one without the other.
const AUTHORITY: &str = "authority.pem";
/// The certificate alone, for stores and for people.
const PUBLIC: &str = "authority.crt";
/// Of each of the two. They have a kilobyte.
pub(crate) const LONGEST_FILE: u64 = 64 << 10;

/// Where the authority of a configuration's server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// The user's: one for all applications, so that a machine trusts it once. Where `-o` or
    /// systemd names a state directory, the one in there. A project's configuration has no say:
    /// with it might come an authority whose key a stranger has.
    ///
    /// # Errors
    ///
    /// When the configuration can't be read; the text says why.
    pub(crate) fn of(arguments: &Arguments) -> Result<Self, String> {
        let input = arguments.input();
        let base = directories::working(arguments, input.main_file().as_deref());
        let typed = Input {
            disk: Disk::Memory(BTreeMap::new()),
            file: None,
            ..arguments.input()
        };
        let named = pronghorn_server::named_state_folder_of(&typed, &base)?;
        let folder = match named.or_else(data_of_user) {
            Some(folder) => folder,
            None => pronghorn_server::state_folder_of(&input, &base)?,
        };
        Ok(Self {
            folder: folder.join("tls"),
        })
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The certificate by which others know it; made if it is not there.
    ///
    /// # Errors
    ///
    /// For a person.
    pub(crate) fn certificate(&self) -> Result<PathBuf, String> {
        self.open()?;
        Ok(self.folder.join(PUBLIC))
    }

    /// Where that is, if there is one.
    pub(crate) fn existing(&self) -> Option<PathBuf> {
        let is_there = self.folder.join(AUTHORITY).exists();
        is_there.then(|| self.folder.join(PUBLIC))
    }

    /// A certificate for these names and addresses, and its key.
    ///
    /// # Errors
    ///
    /// For a person.
    pub(crate) fn issue(&self, names: &[String]) -> Result<(PathBuf, PathBuf), String> {
        let issuer = self.open()?;
        let made = make_certificate(&issuer, names).map_err(|error| {
            format!(
                "a certificate for {} can't be made: {error}",
                names.join(", ")
            )
        })?;
        let (certificate, key) = (
            self.folder.join("server.crt"),
            self.folder.join("server.key"),
        );
        let written = replace(&key, &made.1).and_then(|()| replace(&certificate, &made.0));
        written.map_err(|error| self.unwritable(&error))?;
        Ok((certificate, key))
    }

    /// The authority, made if it is not there.
    fn open(&self) -> Result<Issuer<'static, KeyPair>, String> {
        let path = self.folder.join(AUTHORITY);
        if !path.exists() {
            self.make(&path)?;
        }
        let broken = |why: String| {
            let shown = path.display();
            format!(
                "the local authority `{shown}` can't be used: {why}\nhint: `rm {shown}`, and the next start makes another one"
            )
        };
        let both = read_own(&path).map_err(|error| broken(error.to_string()))?;
        let (key, certificate) =
            halves(&both).ok_or_else(|| broken("it is no key with a certificate".to_owned()))?;
        let key = KeyPair::from_pem(key).map_err(|error| broken(error.to_string()))?;
        let public = self.folder.join(PUBLIC);
        if read_plain(&public, LONGEST_FILE).ok().as_deref() != Some(certificate.as_bytes()) {
            replace(&public, certificate).map_err(|error| self.unwritable(&error))?;
        }
        Ok(Issuer::new(authority_parameters(), key))
    }

    fn make(&self, path: &Path) -> Result<(), String> {
        let made = make_authority()
            .map_err(|error| format!("a certificate authority can't be made: {error}"))?;
        let written = Trusted::steps_of_server()
            .make_directory(&self.folder, 0o700)
            .and_then(|_| {
                let new = directories::beside(path);
                // Another server may make one at the same time: the first stays.
                let linked = write(&new, &made).and_then(|()| std::fs::hard_link(&new, path));
                let removed = std::fs::remove_file(&new);
                match linked.and(removed) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked,
                }
            });
        written.map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &io::Error) -> String {
        format!(
            "the local authority can't be written: `{}`: {error}\n\
             hint: name another folder by `-o state_dir=DIR`",
            self.folder.display()
        )
    }
}

/// The folder of this program in what XDG calls the user's data.
fn data_of_user() -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Some(data?.join("pronghorn"))
}

/// Of a file that is this user's or root's, and nobody else's to read: who has the key can pretend
/// to be any site.
fn read_own(path: &Path) -> io::Result<String> {
    let file = open_plain(path, OpenOptions::new().read(true))?;
    let facts = file.metadata()?;
    let (owner, me) = (facts.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        return Err(io::Error::other(format!(
            "it belongs to user {owner}, who has its key"
        )));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read its key"));
    }
    io::read_to_string(file.take(LONGEST_FILE))
}

/// What does not change: the certificate is known by it again.
fn authority_parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, NAME);
    // It signs servers, and no other authority.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn make_authority() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = authority_parameters();
    valid_for(&mut parameters, OF_AUTHORITY);
    let certificate = parameters.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

fn make_certificate(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, "Pronghorn");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    valid_for(&mut parameters, OF_CERTIFICATE);
    let certificate = parameters.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn valid_for(parameters: &mut CertificateParams, time: Duration) {
    let now = since_1970(SystemTime::now());
    let epoch = date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + now.saturating_sub(BEFORE_NOW);
    parameters.not_after = epoch + now + time;
}

/// The key and the certificate of one file.
fn halves(both: &str) -> Option<(&str, &str)> {
    both.split_at_checked(both.find("-----BEGIN CERTIFICATE-----")?)
}

/// For its owner alone, also while it is written.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    directories::replace(path, |new| write(new, text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn an_authority_is_made_once_for_its_owner_alone() {
        let directory = Directory::new();
        let authority = Authority::in_folder(&directory);
        assert_eq!(authority.existing(), None);
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let (certificate, key) = authority.issue(&names).unwrap();
        let first = std::fs::read_to_string(authority.certificate().unwrap()).unwrap();
        authority.issue(&names).unwrap();
        assert_eq!(
            std::fs::read_to_string(authority.existing().unwrap()).unwrap(),
            first
        );
        for file in [&directory.join(AUTHORITY), &key, &certificate] {
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
        let entries = std::fs::read_dir(&directory).unwrap().count();
        assert_eq!(entries, 4, "nothing else is left");
        std::fs::write(directory.join(AUTHORITY), "nonsense").unwrap();
        let why = authority.issue(&names).unwrap_err();
        assert!(why.contains("hint: `rm "), "{why}");
        // With one that others may read, they can pretend to be any site.
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(directory.join(AUTHORITY), open).unwrap();
        let why = authority.certificate().unwrap_err();
        assert!(why.contains("others may read its key"), "{why}");
        // The certificate of somebody else, who put it there.
        std::fs::remove_file(directory.join(AUTHORITY)).unwrap();
        std::os::unix::fs::symlink(&key, directory.join(AUTHORITY)).unwrap();
        let why = authority.issue(&names).unwrap_err();
        assert!(
            why.contains("a symbolic link, which is not followed"),
            "{why}"
        );
    }
}
