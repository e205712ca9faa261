//! Where a run takes place: its folder for files of the moment, the binaries, the repository.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pronghorn_process::Spawner;
use pronghorn_workers::default_io_threads;

use crate::arguments::Arguments;
use crate::error::BenchError;
use crate::program::{Argv, Program};

/// PHP's settings, the same for all that run PHP. What is not here is PHP's own default; 22527 is
/// all but deprecations, as in its php.ini for production.
const PHP_INI: &str = "memory_limit = 128M
expose_php = Off
display_errors = Off
error_reporting = 22527
opcache.enable = 1
opcache.enable_cli = 1
opcache.jit = disable
";

/// For openssl to make a key.
const CERTIFICATE: Duration = Duration::from_secs(10);

/// Where programs lie that are not in everybody's PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

pub(crate) struct Site {
    pub(crate) spawner: Spawner,
    /// Removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) pronghorn: PathBuf,
    pub(crate) io_threads: usize,
    /// RoadRunner's PHP packages.
    pub(crate) packages: Option<PathBuf>,
    /// On which nobody may listen at the end.
    ports: Mutex<Vec<u16>>,
}

impl Site {
    pub(crate) fn new(spawner: Spawner, arguments: &Arguments) -> Result<Self, BenchError> {
        let pronghorn = match &arguments.pronghorn {
            Some(file) => file.clone(),
            None => own_binary().with_file_name("pronghorn"),
        };
        let pronghorn = std::path::absolute(&pronghorn).unwrap_or(pronghorn);
        if !pronghorn.is_file() {
            return Err(BenchError::NoServer(pronghorn));
        }
        let folder = std::env::temp_dir().join(format!("pronghorn-bench-{}", std::process::id()));
        // Apache's processes have a user of their own, who has to get through.
        let made = DirBuilder::new().mode(0o711).create(&folder);
        made.map_err(|source| BenchError::Write {
            file: folder.clone(),
            source,
        })?;
        let site = Self {
            spawner,
            folder,
            pronghorn,
            io_threads: arguments
                .io_threads
                .map_or_else(default_io_threads, usize::from),
            packages: arguments
                .packages
                .as_ref()
                .map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone())),
            ports: Mutex::default(),
        };
        Self::write_php_ini(&site.php_ini(), &[])?;
        Self::make_folder(&site.shared())?;
        Ok(site)
    }

    pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<PathBuf, BenchError> {
        match std::fs::write(file, content) {
            Ok(()) => Ok(file.to_owned()),
            Err(source) => {
                let file = file.to_owned();
                Err(BenchError::Write { file, source })
            }
        }
    }

    /// A server's own, with a folder `tmp` in it for what applications write, under whatever user.
    pub(crate) fn make_folder(folder: &Path) -> Result<(), BenchError> {
        let temporary = folder.join("tmp");
        let made = DirBuilder::new()
            .mode(0o755)
            .create(folder)
            .and_then(|()| std::fs::create_dir(&temporary))
            .and_then(|()| std::fs::set_permissions(&temporary, Permissions::from_mode(0o1777)));
        made.map_err(|source| BenchError::Write {
            file: folder.to_owned(),
            source,
        })
    }

    /// Where applications have what all servers share.
    pub(crate) fn shared(&self) -> PathBuf {
        self.folder.join("shared")
    }

    /// Notes that a server is about to listen there; returns a folder for it, not yet made. The
    /// system gives out ports again, so that these make no names.
    pub(crate) fn note(&self, address: SocketAddr) -> PathBuf {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.push(address.port());
        self.folder.join(ports.len().to_string())
    }

    /// The same for a server that shares the folder of another one.
    pub(crate) fn also_note(&self, address: SocketAddr) {
        _ = self.note(address); // no folder of its own
    }

    /// The runner's settings of PHP, and these behind them.
    pub(crate) fn write_php_ini(file: &Path, more: &[String]) -> Result<(), BenchError> {
        let mut settings = PHP_INI.to_owned();
        for line in more {
            settings.push_str(line);
            settings.push('\n');
        }
        Self::write(file, settings).map(drop)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.clone()
    }

    /// The certificate of all servers with TLS, and its key.
    pub(crate) fn certificate(&self) -> (PathBuf, PathBuf) {
        (self.folder.join("tls.pem"), self.folder.join("tls.key"))
    }

    /// Makes it, once.
    pub(crate) async fn make_certificate(&self) -> Result<(), BenchError> {
        let (certificate, key) = self.certificate();
        if certificate.exists() {
            return Ok(());
        }
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
        let mut arguments: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        arguments.extend(["-addext".into(), "subjectAltName=IP:127.0.0.1".into()]);
        arguments.extend(["-keyout".into(), key.into(), "-out".into()]);
        arguments.push(certificate.clone().into());
        let argv = Argv(find("openssl", "openssl")?, arguments);
        let mut openssl = Program::start(argv, self, &self.folder).await?;
        openssl.finish(CERTIFICATE).await;
        if certificate.exists() {
            return Ok(());
        }
        Err(BenchError::Tool {
            program: "openssl",
            why: "made no certificate".to_owned(),
            said: openssl.stderr(),
        })
    }

    pub(crate) fn php_ini(&self) -> PathBuf {
        self.folder.join("php.ini")
    }

    /// One of the applications that are measured.
    pub(crate) fn app(name: &str) -> PathBuf {
        apps().join(name)
    }

    /// The same file of an application where every user may read it: the repository may be in
    /// somebody's home.
    pub(crate) fn for_others(&self, file: &Path) -> Result<PathBuf, BenchError> {
        let copies = self.folder.join("apps");
        if !copies.exists() {
            copy(&apps(), &copies).map_err(|source| BenchError::Write {
                file: copies.clone(),
                source,
            })?;
        }
        let inside = file.strip_prefix(apps()).unwrap_or(file);
        Ok(copies.join(inside))
    }
}

fn apps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps")
}

/// The folder of the sources.
pub(crate) fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder).to_owned()
}

/// A folder with all that is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

impl Drop for Site {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder); // left over, it does no harm
    }
}

/// This program.
pub(crate) fn own_binary() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// A program by its name.
pub(crate) fn find(program: &str, package: &'static str) -> Result<OsString, BenchError> {
    find_any(&[program], package)
}

/// The first of several programs that is there.
pub(crate) fn find_any(programs: &[&str], package: &'static str) -> Result<OsString, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .collect();
    let mut files = programs
        .iter()
        .flat_map(|program| folders.iter().map(move |folder| folder.join(program)));
    files
        .find(|file| file.is_file())
        .map(OsString::from)
        .ok_or_else(|| BenchError::Missing {
            program: programs.first().unwrap_or(&"").to_string(),
            package,
        })
}

/// An address of this machine that nobody listens on.
pub(crate) fn free_address() -> Result<SocketAddr, BenchError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(BenchError::NoPort)
}
