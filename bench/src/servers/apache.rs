//! Apache with PHP inside of its processes, and Apache running programs by CGI.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

use super::{Adapter, Kind, Place, find_file};
use crate::error::BenchError;
use crate::program::Argv;
use crate::site::{find, find_any};

/// Where Debian and others keep what Apache loads.
const MODULES: [&str; 3] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/libexec/apache2",
];
/// A process of Apache belongs to a connection as long as that lives: with fewer, all but the first
/// few connections would only wait.
const PROCESSES: u16 = 16;
/// As its default for `MaxRequestWorkers`.
const MOST_PROCESSES: u16 = 256;

pub(crate) struct Apache {
    name: &'static str,
    packages: &'static str,
    /// Beyond those that every server needs.
    modules: &'static [&'static str],
    what: What,
}

enum What {
    Php,
    Cgi,
}

pub(crate) const PHP: Apache = Apache {
    name: "apache-php",
    packages: "apache2-bin libapache2-mod-php",
    modules: &["dir"],
    what: What::Php,
};

pub(crate) const CGI: Apache = Apache {
    name: "apache-cgi",
    packages: "apache2-bin make gcc g++",
    modules: &["alias", "cgi"],
    what: What::Cgi,
};

/// The same with the module that starts programs from a process of their own, as Debian pairs it
/// with processes of many threads.
pub(crate) const CGID: Apache = Apache {
    name: "apache-cgid",
    packages: CGI.packages,
    modules: &["alias", "cgid"],
    what: What::Cgi,
};

impl Adapter for Apache {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn packages(&self) -> &'static str {
        self.packages
    }

    fn forgets_children(&self) -> bool {
        self.name == CGID.name
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let program = find_any(&["apache2", "httpd"], "apache2-bin")?;
        let missing = |what: &str| BenchError::Missing {
            program: what.to_owned(),
            package: self.packages,
        };
        let modules = MODULES
            .map(Path::new)
            .into_iter()
            .find(|folder| folder.is_dir());
        let modules = modules.ok_or_else(|| missing("Apache's modules"))?;
        let mut loaded: Vec<String> = ["mpm_prefork", "authz_core"]
            .iter()
            .chain(self.modules)
            .map(|name| {
                format!(
                    "LoadModule {name}_module {}/mod_{name}.so",
                    modules.display()
                )
            })
            .collect();
        let site = match self.what {
            What::Php => {
                let file = find_file(modules, "libphp", ".so").ok_or_else(|| missing("mod_php"))?;
                loaded.push(format!("LoadModule php_module {}", file.display()));
                let script = place.site.for_others(&place.script("public/index.php")?)?;
                let public = script.parent().unwrap_or(&script).display().to_string();
                // One script for all paths.
                format!(
                    "PHPIniDir {ini}
DocumentRoot {public}
<Directory {public}>
    Require all granted
    DirectoryIndex index.php
    FallbackResource /index.php
</Directory>
<FilesMatch \\.php$>
    SetHandler application/x-httpd-php
</FilesMatch>",
                    ini = place.folder.display(),
                )
            }
            What::Cgi => {
                let programs = build(place)?;
                format!(
                    "ScriptAlias / {programs}/
<Directory {programs}>
    Require all granted
    Options +ExecCGI
</Directory>",
                    programs = programs.display(),
                )
            }
        };
        let file = place.write("apache.conf", &configuration(place, &loaded, &site))?;
        let arguments = ["-DFOREGROUND".into(), "-f".into(), file.into()];
        Ok(vec![Argv::new(program, arguments)])
    }
}

/// CGI programs come as sources.
pub(super) fn build(place: &Place<'_>) -> Result<PathBuf, BenchError> {
    let folder = place.folder.join("cgi-bin");
    let made = Command::new(find("make", "make")?)
        .arg("-s")
        .arg("-C")
        .arg(place.app())
        .arg(format!("OUT={}", folder.display()))
        .output();
    let said = match made {
        Ok(output) if output.status.success() => return Ok(folder),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Err(BenchError::Tool {
        program: "make",
        why: "did not build the CGI programs".to_owned(),
        said,
    })
}

fn configuration(place: &Place<'_>, modules: &[String], site: &str) -> String {
    let folder = place.folder.display();
    let connections = u16::try_from(place.setup().connections).unwrap_or(u16::MAX);
    let processes = PROCESSES
        .max(place.workers())
        .max(connections.min(MOST_PROCESSES));
    format!(
        "ServerRoot {folder}
ServerName 127.0.0.1
DefaultRuntimeDir {folder}
PidFile {folder}/apache.pid
{modules}
{user}
Listen {address}
ErrorLog /dev/stderr
{script_socket}
LogLevel error
StartServers {processes}
MinSpareServers {processes}
MaxSpareServers {more}
ServerLimit {processes}
MaxRequestWorkers {processes}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
{site}
",
        modules = modules.join("\n"),
        // It refuses to run its processes as root.
        user = if geteuid().is_root() {
            "User www-data\nGroup www-data"
        } else {
            ""
        },
        script_socket = if modules
            .iter()
            .any(|line| line.starts_with("LoadModule cgid_"))
        {
            format!("ScriptSock {folder}/cgid.sock")
        } else {
            String::new()
        },
        address = place.address,
        more = processes + 1,
    )
}
