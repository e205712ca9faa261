//! What `serve` serves: a configuration, what stands on the command line, or what it finds in the
//! folder.

use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use pronghorn_config::{Input, MAIN_FILES, Preset};

use super::Failure;
use crate::application::{Application, PUBLIC, looked_for};
use crate::arguments::{Arguments, Serve};
use crate::authority::Authority;

/// Where HTTP is served when nothing says otherwise: the first run must work, and only this machine
/// may see it.
const FIRST_ADDRESS: &str = "127.0.0.1:8080";
/// The same for HTTPS.
const FIRST_TLS_ADDRESS: &str = "127.0.0.1:8443";
/// Where the internet asks for a site, and where an authority looks for it.
const PUBLIC_ADDRESS: &str = ":80";
const PUBLIC_TLS_ADDRESS: &str = ":443";
/// In development so many ports after a taken one are tried.
const PORTS: u16 = 20;
/// What `-o` may set beside an application that was found: how it is served, and who may look on.
/// Anything else is a configuration of its own, and so are further pools.
const BESIDE: [&str; 13] = [
    "http.",
    "logs.",
    "endure.",
    "state_dir=",
    "server.allow_root=",
    "server.user=",
    "server.group=",
    "server.env",
    "status.",
    "metrics.",
    "otel.",
    "admin.",
    "reports.",
];
const FURTHER_POOLS: &str = "http.pools.";

/// What is served without a configuration, for the person who has typed `serve`.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Lines of two columns.
    pub(super) lines: Vec<(&'static str, String)>,
    /// What should be looked at.
    pub(super) warnings: Vec<String>,
    /// The page of an empty directory.
    welcome: Option<Welcome>,
}

/// What `serve` without arguments finds, and the settings by which it serves that; None where there
/// is a configuration, or nothing to be found.
pub(crate) fn without_configuration(mut input: Input) -> Option<(Application, Input)> {
    if input.main_file().is_some() || !is_unconfigured(&input) {
        return None;
    }
    let application = Application::in_folder(&folder_of(&input))?;
    let mut keys = application.keys();
    keys.push(Preset::text("version", "3"));
    keys.push(Preset::text("http.address", FIRST_ADDRESS));
    input.presets.splice(0..0, keys);
    Some((application, input))
}

/// Sets the keys of what is to be served. What the user wrote by `-o` wins, because it comes
/// behind.
pub(super) fn look(
    arguments: &Arguments,
    input: &mut Input,
    options: &Serve,
) -> Result<Found, Failure> {
    let has_file = input.main_file().is_some();
    let mut keys = Vec::new();
    let mut found = Found::default();
    if let Some(application) = application(input, options)? {
        if let Some(path) = application.path_without_text() {
            return Err(Failure::misused(format!(
                "the path `{}` is not UTF-8, as settings are\nhint: rename it, or write a \
                 configuration whose paths begin in the application's directory: `pronghorn init` \
                 there does so",
                path.display()
            )));
        }
        keys.extend(application.keys());
        // A file says itself how replies are sent.
        let middleware = Preset::list("http.middleware", ["compress"]);
        keys.retain(|key| !(has_file && *key == middleware));
        found = described(&application);
    } else if !has_file && is_unconfigured(input) {
        let folder = folder_of(input);
        if !is_empty(&folder)? {
            return Err(nothing_to_serve(&folder));
        }
        let welcome = Welcome::new(&folder).map_err(|error| {
            Failure::failed(format!("cannot write a page for an empty folder: {error}"))
        })?;
        keys.extend(welcome.keys());
        found
            .lines
            .push(("found", format!("an empty folder, {}", folder.display())));
        found
            .lines
            .push(("runs", "a page that says what was looked for".to_owned()));
        found.welcome = Some(welcome);
    }
    if !keys.is_empty() && !has_file {
        keys.push(Preset::text("version", "3"));
    }
    let is_ours = !keys.is_empty() && !has_file;
    let has_domains = !options.domains.is_empty();
    let first = if options.tls {
        FIRST_TLS_ADDRESS
    } else if has_domains {
        PUBLIC_ADDRESS
    } else {
        FIRST_ADDRESS
    };
    if let Some(wanted) = options
        .listen
        .as_deref()
        .or_else(|| (is_ours || options.tls || has_domains).then_some(first))
    {
        let wanted = &with_host(wanted);
        let address = if options.dev {
            free_address(wanted)
        } else {
            None
        };
        if let Some(address) = &address {
            found
                .warnings
                .push(format!("`{wanted}` is taken, so `{address}` is served"));
        }
        let address = address.as_deref().unwrap_or(wanted);
        if options.tls {
            keys.extend(tls(arguments, address, &mut found)?);
        } else {
            keys.push(Preset::text("http.address", address));
        }
    }
    if has_domains {
        keys.push(Preset::text("http.ssl.address", PUBLIC_TLS_ADDRESS));
        keys.push(Preset::text("http.ssl.redirect", true));
        let domains = options.domains.iter().map(String::as_str);
        keys.push(Preset::list("http.ssl.acme.domains", domains));
        found.lines.push(("tls", "by Let's Encrypt".to_owned()));
    }
    if let Some(workers) = options.workers {
        keys.push(Preset::text("http.pool.num_workers", workers));
    }
    if let Some(mode) = options.mode {
        keys.push(Preset::text("http.pool.mode", mode.key()));
    }
    input.presets.splice(0..0, keys);
    Ok(found)
}

/// HTTPS at this address, by a certificate of the local authority.
fn tls(arguments: &Arguments, address: &str, found: &mut Found) -> Result<Vec<Preset>, Failure> {
    let authority = Authority::of(arguments).map_err(Failure::failed)?;
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_matches(['[', ']']);
    let mut names = ["localhost", "*.localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    for name in [host, &machine] {
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
        if is_name && !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let (certificate, key) = authority.issue(&names).map_err(Failure::failed)?;
    found.lines.push((
        "tls",
        "by the local authority; `pronghorn trust` makes this machine trust it".to_owned(),
    ));
    Ok(vec![
        Preset::text("http.ssl.address", address),
        Preset::text("http.ssl.cert", certificate.display()),
        Preset::text("http.ssl.key", key.display()),
    ])
}

/// What the command line names, else what the folder shows.
fn application(input: &Input, options: &Serve) -> Result<Option<Application>, Failure> {
    if let Some(root) = &options.root {
        return in_root(root).map(Some);
    }
    match &options.target {
        Some(target) if target.is_dir() => {
            let folder = absolute(target);
            if let Some(file) = MAIN_FILES.iter().find(|file| folder.join(file).exists()) {
                return Err(Failure::misused(format!(
                    "`{0}` has a configuration, `{file}`\nhint: `pronghorn serve -w {0} -c {0}/{file}` \
                     serves by it",
                    target.display()
                )));
            }
            let found = Application::in_folder(&folder);
            found.map(Some).ok_or_else(|| nothing_to_serve(&folder))
        }
        Some(script) => by_script(script).map(Some),
        None if input.main_file().is_none() && is_unconfigured(input) => {
            Ok(Application::in_folder(&folder_of(input)))
        }
        None => Ok(None),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// As the shell has it, so that a link stays one.
fn folder_of(input: &Input) -> PathBuf {
    let here = crate::directories::current();
    // Joined, "" would add a slash.
    if input.folder.as_os_str().is_empty() {
        here
    } else {
        here.join(&input.folder)
    }
}

fn is_unconfigured(input: &Input) -> bool {
    let is_beside = |given: &str| {
        BESIDE.iter().any(|key| given.starts_with(key)) && !given.starts_with(FURTHER_POOLS)
    };
    let presets = input.presets.iter().map(|it| format!("{}=", it.key()));
    let mut given = presets.chain(input.overrides.iter().cloned());
    given.all(|given| is_beside(&given))
}

/// Names that begin with a dot are nobody's application.
///
/// # Errors
///
/// When the folder can't be read; for a person.
fn is_empty(folder: &Path) -> Result<bool, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let shown = folder.display();
        Failure::misused(format!(
            "the folder `{shown}` can't be read: {error}\nhint: `namei -l {shown}` shows who may"
        ))
    })?;
    let mut names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.all(|name| name.as_encoded_bytes().starts_with(b".")))
}

fn by_script(script: &Path) -> Result<Application, Failure> {
    let shown = script.display();
    match Application::script(&absolute(script)) {
        Ok(application) if script.is_file() => Ok(application),
        _ if !script.exists() => Err(Failure::misused(format!(
            "there is no script `{shown}`\nhint: the path is taken from {}",
            crate::directories::current().display()
        ))),
        Ok(_) => Err(Failure::misused(format!("`{shown}` is no file"))),
        Err(error) => Err(Failure::misused(format!(
            "the script `{shown}` can't be read: {error}\nhint: `namei -l {shown}` shows who may"
        ))),
    }
}

/// `--root`: this folder, or the one below it with an index.
fn in_root(root: &Path) -> Result<Application, Failure> {
    let shown = root.display();
    if root.is_file() {
        let folder = root
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        return Err(Failure::misused(format!(
            "`{shown}` is a file, and `--root` takes a folder\nhint: `pronghorn serve --root {}` \
             serves the folder that it is in, `pronghorn serve {shown}` a script",
            folder.unwrap_or_else(|| Path::new(".")).display()
        )));
    }
    if !root.is_dir() {
        return Err(Failure::misused(format!(
            "there is no folder `{shown}`\nhint: the path is taken from {}",
            crate::directories::current().display()
        )));
    }
    let mut folders = std::iter::once(root.to_owned()).chain(PUBLIC.map(|name| root.join(name)));
    let with_index = folders.find(|folder| folder.join("index.php").is_file());
    Ok(Application::root(&absolute(
        with_index.as_deref().unwrap_or(root),
    )))
}

fn described(application: &Application) -> Found {
    let Application {
        name, sign, others, ..
    } = application;
    let mut found = Found::default();
    found.lines.push(("found", format!("{name}, by `{sign}`")));
    found.lines.push(("runs", application.runs()));
    if !others.is_empty() {
        let worker = others.iter().find(|sign| sign.ends_with("worker.php"));
        found.warnings.push(format!(
            "this folder has the signs of another application, too: `{}`; `serve {}` chooses one",
            others.join("`, `"),
            worker.unwrap_or(&"DIR")
        ));
    }
    if let Some(closed) = application.closed() {
        if !closed.files.is_empty() {
            found
                .lines
                .push(("closed", format!("as `{}` say", some_of(&closed.files))));
        }
        let told = closed.told.iter();
        let told = told.map(|text| format!("not as `.htaccess` says: {text}"));
        found.warnings.extend(told);
        if closed.is_whole() {
            let text = "the whole site is closed: `pronghorn init` writes a configuration, and \
                        without the last of its routes, `/*`, the site is open";
            found.warnings.push(text.to_owned());
        }
    }
    found.warnings.extend(application.lacks_packages());
    found.warnings.extend(application.is_perhaps_a_page());
    found
}

/// A list of files, as long as a line of a terminal.
fn some_of(files: &[String]) -> String {
    const MOST: usize = 3;
    match files.len().checked_sub(MOST) {
        Some(others @ 1..) => {
            let first = files.get(..MOST).unwrap_or_default();
            format!("{}` and {others} more `.htaccess", first.join("`, `"))
        }
        _ => files.join("`, `"),
    }
}

/// A port alone is on loopback, as other servers for development take it.
fn with_host(address: &str) -> String {
    match address.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => address.to_owned(),
    }
}

/// The address, unless its port is taken: then the next free one.
fn free_address(wanted: &str) -> Option<String> {
    let (host, port) = wanted.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let hosts = if host.is_empty() {
        &["[::]", "0.0.0.0"][..]
    } else {
        &[host][..]
    };
    // Of a name all its addresses. One that does not exist here is told by who binds it.
    let is_free = |port: u16| {
        let all = hosts.iter().map(|host| format!("{host}:{port}"));
        let mut addresses = all
            .filter_map(|shown| shown.to_socket_addrs().ok())
            .flatten();
        addresses.all(|address| {
            let bound = TcpListener::bind(address);
            bound.map_or_else(|error| error.kind() != io::ErrorKind::AddrInUse, |_| true)
        })
    };
    if is_free(port) {
        return None;
    }
    let mut next = (1..=PORTS).filter_map(|more| port.checked_add(more));
    next.find(|port| is_free(*port))
        .map(|port| format!("{host}:{port}"))
}

/// Says what was looked for and what to type.
fn nothing_to_serve(folder: &Path) -> Failure {
    Failure::misused(format!(
        "there is nothing to serve in {}: neither a configuration (`{}`) nor an application (`{}`)\n\
         hint: `pronghorn serve worker.php` serves a worker script, `pronghorn serve --root DIR` a \
         folder of PHP scripts and files; `-c FILE` names a configuration",
        folder.display(),
        MAIN_FILES.join("`, `"),
        looked_for().join("`, `")
    ))
}

/// A page that says what was looked for; it goes with its owner.
#[derive(Debug)]
struct Welcome(PathBuf);

impl Welcome {
    fn new(folder: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("pronghorn-welcome-{:x}", fastrand::u64(..)));
        std::fs::DirBuilder::new().mode(0o755).create(&path)?;
        let welcome = Self(path);
        let escaped = folder
            .display()
            .to_string()
            .replace('&', "&amp;")
            .replace('<', "&lt;");
        let files = MAIN_FILES.iter().copied().chain(looked_for());
        let list: Vec<_> = files
            .map(|file| format!("<li><code>{file}</code></li>\n"))
            .collect();
        let page = include_str!("welcome.html")
            .replace("{folder}", &escaped)
            .replace("{list}", &list.concat());
        std::fs::write(welcome.0.join("index.html"), page)?;
        Ok(welcome)
    }

    /// Files, and programs that are not there: no PHP is needed.
    fn keys(&self) -> Vec<Preset> {
        let folder = self.0.display();
        vec![
            Preset::list("http.middleware", ["static"]),
            Preset::text("http.static.dir", &folder),
            Preset::list("http.static.index", ["index.html"]),
            Preset::text("http.pool.mode", "cgi"),
            Preset::text("http.pool.root", &folder),
        ]
    }
}

impl Drop for Welcome {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0); // it is in a folder for temporary files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_moves_to_the_next() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let next = free_address(&format!("127.0.0.1:{port}")).unwrap();
        let next: u16 = next.rsplit(':').next().unwrap().parse().unwrap();
        assert!(next > port && next <= port + PORTS);
        drop(taken);
        assert_eq!(free_address(&format!("127.0.0.1:{port}")), None);
        assert_eq!(free_address("unix:///run/x.sock"), None);
        // Of all addresses, and of a name, one that is taken is enough.
        for (taken, wanted) in [("[::1]:0", ""), ("127.0.0.1:0", "localhost")] {
            let Ok(taken) = TcpListener::bind(taken) else {
                continue; // no IPv6 here
            };
            let port = taken.local_addr().unwrap().port();
            assert!(free_address(&format!("{wanted}:{port}")).is_some());
        }
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(with_host("8000"), "127.0.0.1:8000");
        assert_eq!(with_host(":8000"), ":8000");
        // Whoever reads it says that this is no port.
        assert_eq!(with_host("99999"), "99999");
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_not_empty() {
        assert!(is_empty(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn options_of_their_own_are_a_configuration() {
        let input = |given: &str| Input {
            overrides: vec![given.to_owned()],
            ..Input::default()
        };
        assert!(is_unconfigured(&Input::default()));
        assert!(is_unconfigured(&input("http.pool.num_workers=2")));
        assert!(is_unconfigured(&input("http.trusted_subnets=10.0.0.0/8")));
        assert!(is_unconfigured(&input("status.address=:2114")));
        assert!(!is_unconfigured(&input(
            "http.pools.api.command=php,api.php"
        )));
        assert!(!is_unconfigured(&input("server.command=php,worker.php")));
        assert!(!is_unconfigured(&input("rpc.listen=tcp://:6001")));
    }
}
