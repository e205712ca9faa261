//! Debian's php-fpm, for what has to be measured against it.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use pronghorn_testkit::{Site, php_command, wait_for};

/// A running php-fpm with two children; ends with this value.
pub(crate) struct PhpFpm {
    process: Child,
    socket: PathBuf,
}

impl PhpFpm {
    /// Starts it in a site's folder, with the settings that Debian installs.
    pub(crate) fn start(site: &Site) -> Self {
        let (name, socket) = (site.folder().display(), site.path("fpm.sock"));
        let root = rustix::process::geteuid().is_root();
        let user = if root {
            "user = root\ngroup = root\n"
        } else {
            ""
        };
        site.write(
            "fpm.conf",
            &format!(
                "[global]\nerror_log = {name}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {}\npm = static\npm.max_children = 2\n",
                socket.display()
            ),
        );
        let mut command = php_command(program());
        command.arg("-y").arg(site.path("fpm.conf"));
        if root {
            command.arg("-R");
        }
        let process = command
            .current_dir(site.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("php-fpm can be started");
        wait_for("php-fpm to listen", || {
            std::os::unix::net::UnixStream::connect(&socket)
                .ok()
                .map(drop)
        });
        Self { process, socket }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }
}

/// As a configuration names it.
pub(crate) fn name() -> String {
    let program = program();
    let name = program.file_name().expect("a program");
    name.to_string_lossy().into_owned()
}

/// Debian puts the version into its name.
pub(crate) fn program() -> PathBuf {
    let names = [
        "php-fpm",
        "php-fpm8.6",
        "php-fpm8.5",
        "php-fpm8.4",
        "php-fpm8.3",
        "php-fpm8.2",
        "php-fpm8.1",
    ];
    let paths = names.iter().flat_map(|name| {
        [
            format!("/usr/sbin/{name}"),
            format!("/usr/local/sbin/{name}"),
        ]
    });
    let found = paths.map(PathBuf::from).find(|path| path.exists());
    found.expect("php-fpm is installed (scripts/need tests)")
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM); // it may have ended
        _ = self.process.wait(); // as above
    }
}
