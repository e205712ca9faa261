//! Certificates, and authorities of clients, whose files have changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::lock;
use rustls::ServerConfig;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::{Authorities, ClientCertificates, Pair, Store, Tls, TlsError, config};

/// How often the files are looked at. Watching them would not see through the symbolic links that
/// certbot and Kubernetes exchange; a look is a system call a file.
const LOOK: Duration = Duration::from_secs(5);

/// How the reading of a file ended that has changed.
#[derive(Debug)]
pub struct Renewed {
    /// As a record begins.
    pub subject: &'static str,
    pub file: PathBuf,
    /// An error leaves in use what was there before. The same error is told once.
    pub result: Result<(), TlsError>,
}

/// Certificates and authorities that can be used, and are not yet.
#[derive(Debug)]
pub struct ReadTls {
    store: Store,
    authorities: Option<(Authorities, ServerConfig)>,
}

impl Tls {
    /// Looks for changed files until it is dropped, and tells what came of each. Those that can't
    /// be read are tried at each look.
    pub async fn watch(self, tell: fn(Renewed)) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let tls = self.clone();
            let renewed = spawn_blocking(move || tls.refresh()).await;
            // A panic was reported.
            renewed.unwrap_or_default().into_iter().for_each(tell);
        }
    }

    /// Reads those files again that have changed since, or could not be read. Blocks for the disk.
    fn refresh(&self) -> Vec<Renewed> {
        let certificates = self.store.refresh().into_iter();
        let certificates = certificates.map(|(file, result)| Renewed {
            subject: "the certificate",
            file,
            result: result.map_err(TlsError::Certificate),
        });
        let mut renewed: Vec<_> = certificates.collect();
        renewed.extend(self.refresh_authorities());
        renewed
    }

    fn refresh_authorities(&self) -> Option<Renewed> {
        let mut used = lock(self.authorities.as_deref()?);
        let stamp = used.stamp();
        if !used.read.is_due(&stamp) {
            return None;
        }
        let read = used.read_again();
        if !used.read.note(stamp, &read) {
            return None;
        }
        let result = read.map_err(TlsError::Certificate).and_then(|new| {
            if !used.is_same(&new) {
                self.config.store(Arc::new(self.config_with(&new)?));
                used.take(new);
            }
            Ok(())
        });
        Some(Renewed {
            subject: "the list of authorities",
            file: used.file.clone(),
            result,
        })
    }

    /// Reads all files, for [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// What is wrong with the first that can't be used.
    pub async fn read_again(&self, pairs: Option<Vec<Pair>>) -> Result<ReadTls, String> {
        let tls = self.clone();
        let read = spawn_blocking(move || {
            let pairs = pairs.unwrap_or_else(|| tls.store.pairs());
            tls.read_all(&pairs).map_err(|error| error.to_string())
        });
        let read = read.await.map_err(|panicked| panicked.to_string());
        read.flatten()
    }

    fn read_all(&self, pairs: &[Pair]) -> Result<ReadTls, TlsError> {
        let store = Store::load(pairs)?;
        let authorities = match &self.authorities {
            None => None,
            Some(used) => {
                let used = lock(used).clone();
                let new = used.read_again()?;
                let config = self.config_with(&new)?;
                Some((new, config))
            }
        };
        Ok(ReadTls { store, authorities })
    }

    /// Its tickets have new keys: no session goes on whose authority may have gone.
    fn config_with(&self, authorities: &Authorities) -> Result<ServerConfig, TlsError> {
        let clients = ClientCertificates::Of {
            authorities: authorities.clone(),
            required: self.requires,
        };
        let mut config = config(self.store.clone(), Some(clients)).map_err(TlsError::Setup)?;
        config
            .alpn_protocols
            .clone_from(&self.config.load().alpn_protocols);
        Ok(config)
    }

    /// Goes over to what was read. Gives the files of which something is new.
    pub fn replace(&self, read: ReadTls) -> Vec<PathBuf> {
        let ReadTls { store, authorities } = read;
        let mut new = self.store.replace(store);
        if let (Some(used), Some((authorities, config))) = (&self.authorities, authorities) {
            let mut used = lock(used);
            // Sessions go on where the authorities are the same.
            if !used.is_same(&authorities) {
                self.config.store(Arc::new(config));
                new.push(authorities.file.clone());
            }
            *used = authorities;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rcgen::CertifiedKey;

    use super::*;
    use crate::tls::certificate::{ReadState, Stamp};

    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            let directory = format!("pronghorn-tls-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(directory);
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn pair(&self) -> Pair {
            Pair {
                certificate: self.path("a.pem"),
                key: self.path("a.key"),
            }
        }

        fn make(&self) {
            let CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
            fs::write(self.path("a.pem"), cert.pem()).unwrap();
            fs::write(self.path("a.key"), signing_key.serialize_pem()).unwrap();
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Leaves the file's time of modification as it was.
    fn write_unseen(path: &Path, text: &[u8]) {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        fs::write(path, text).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(modified).unwrap();
    }

    fn told(tls: &Tls) -> Vec<(&'static str, bool)> {
        let renewed = tls.refresh().into_iter();
        let renewed = renewed.map(|renewed| (renewed.subject, renewed.result.is_ok()));
        renewed.collect()
    }

    #[tokio::test]
    async fn a_file_that_could_not_be_read_is_read_when_it_can_be() {
        let files = Files::new("unread");
        files.make();
        let tls = Tls::new(Arc::new(Store::load(&[files.pair()]).unwrap())).unwrap();
        assert_eq!(told(&tls), []);
        let key = fs::read(files.path("a.key")).unwrap();
        write_unseen(&files.path("a.key"), &vec![b'x'; key.len()]);
        assert_eq!(told(&tls), [("the certificate", false)]);
        assert_eq!(told(&tls), [], "the same is told once");
        tls.read_again(None).await.unwrap_err();
        write_unseen(&files.path("a.key"), &key);
        assert_eq!(told(&tls), [("the certificate", true)]);
        assert_eq!(told(&tls), []);
        assert_eq!(
            tls.replace(tls.read_again(None).await.unwrap()),
            <[PathBuf; 0]>::default()
        );
        files.make();
        let new = tls.replace(tls.read_again(None).await.unwrap());
        assert_eq!(new, [files.path("a.pem")]);
    }

    #[test]
    fn a_failure_is_tried_again_though_nothing_changes() {
        let stamp = Stamp::of(&[Path::new("/nowhere")]);
        let mut state = ReadState::new(stamp.clone());
        assert!(!state.is_due(&stamp));
        let failed = || Authorities::read(Path::new("/nowhere"), None);
        assert!(state.note(stamp.clone(), &failed()));
        assert!(state.is_due(&stamp));
        assert!(!state.note(stamp.clone(), &failed()));
        assert!(state.note(stamp.clone(), &Ok(())));
        assert!(!state.is_due(&stamp));
    }

    #[tokio::test]
    async fn other_authorities_are_taken_and_a_broken_list_is_not() {
        let files = Files::new("authorities");
        files.make();
        let clients = ClientCertificates::Of {
            authorities: Authorities::read(&files.path("a.pem"), None).unwrap(),
            required: true,
        };
        let tls = Tls::with_clients(Arc::new(Store::load(&[]).unwrap()), Some(clients)).unwrap();
        let offered = || {
            let config = tls.config.load_full();
            Arc::as_ptr(&config) as usize
        };
        let tls_of_before = offered();
        fs::write(files.path("a.pem"), "x").unwrap();
        assert_eq!(told(&tls), [("the list of authorities", false)]);
        assert_eq!(told(&tls), []);
        tls.read_again(None).await.unwrap_err();
        assert_eq!(offered(), tls_of_before);
        files.make();
        assert_eq!(told(&tls), [("the list of authorities", true)]);
        let renewed = offered();
        assert_ne!(renewed, tls_of_before);
        assert_eq!(
            tls.replace(tls.read_again(None).await.unwrap()),
            <[PathBuf; 0]>::default()
        );
        assert_eq!(offered(), renewed, "sessions go on");
        files.make();
        let new = tls.replace(tls.read_again(None).await.unwrap());
        assert_eq!(new, [files.path("a.pem")]);
        assert_ne!(offered(), renewed);
    }
}
