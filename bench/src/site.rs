//! Where a run takes place: its folder for files of the moment, the binaries, the repository.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pronghorn_http::settings::default_threads;
use pronghorn_process::Spawner;

use crate::arguments::Arguments;
use crate::error::BenchError;

/// PHP's settings, the same for the command line and php-fpm. What is not here is as installed.
const PHP_INI: &str = "memory_limit = 128M
expose_php = Off
opcache.enable = 1
opcache.enable_cli = 1
opcache.jit = disable
";

/// Where programs lie that are not in everybody's PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

pub(crate) struct Site {
    pub(crate) spawner: Spawner,
    /// Removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) pronghorn: PathBuf,
    pub(crate) io_threads: usize,
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
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|source| BenchError::Write {
                file: folder.clone(),
                source,
            })?;
        let site = Self {
            spawner,
            folder,
            pronghorn,
            io_threads: arguments
                .io_threads
                .map_or_else(default_threads, usize::from),
        };
        site.write("php.ini", PHP_INI)?;
        Ok(site)
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, BenchError> {
        let file = self.folder.join(name);
        match std::fs::write(&file, content) {
            Ok(()) => Ok(file),
            Err(source) => Err(BenchError::Write { file, source }),
        }
    }

    pub(crate) fn php_ini(&self) -> PathBuf {
        self.folder.join("php.ini")
    }

    /// One of the applications that are measured.
    pub(crate) fn app(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("apps")
            .join(name)
    }
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
