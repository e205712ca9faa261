//! What a folder holds: the application that `serve` serves and `init` writes a configuration for.
//!
//! Looks at names of files, and into a worker script; runs nothing.

mod composer;
mod known;

use std::io;
use std::path::{Path, PathBuf};

use pronghorn_base::{open_linked, read_linked};
use pronghorn_config::Preset;
use pronghorn_convert::Closed;

pub(crate) use composer::missing_package;

/// A file that tells an application, in the order in which `serve` looks.
struct Sign {
    file: &'static str,
    /// Must be there as well.
    with: Option<&'static str>,
    name: &'static str,
    runs: Runs,
}

/// How what was found is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Scripts below this folder; paths without a file go to `index.php`.
    Below(&'static str),
    /// The file itself, as a kept worker.
    Worker,
    /// A framework by a package of ours: this script, kept, with this in its environment. What lies
    /// in `public` is sent without PHP.
    Framework(&'static str, Option<(&'static str, &'static str)>),
}

const SIGNS: [Sign; 15] = [
    Sign::new(
        "vendor/pronghorn/laravel",
        Some("artisan"),
        "Laravel",
        Runs::Framework("vendor/bin/pronghorn-laravel", None),
    ),
    Sign::new(
        "artisan",
        Some("public/index.php"),
        "Laravel",
        Runs::Below("public"),
    ),
    Sign::new(
        "vendor/pronghorn/symfony-runtime",
        Some("public/index.php"),
        "Symfony",
        Runs::Framework(
            "public/index.php",
            Some(("APP_RUNTIME", r"Pronghorn\Symfony\Runtime")),
        ),
    ),
    Sign::new(
        "bin/console",
        Some("public/index.php"),
        "Symfony",
        Runs::Below("public"),
    ),
    Sign::new("wp-config.php", None, "WordPress", Runs::Below("")),
    Sign::new("wp-load.php", None, "WordPress", Runs::Below("")),
    Sign::new(
        "config/autoload",
        Some("public/index.php"),
        "Mezzio",
        Runs::Below("public"),
    ),
    Sign::new("worker.php", None, "a worker script", Runs::Worker),
    Sign::new("psr-worker.php", None, "a worker script", Runs::Worker),
    Sign::new("bin/worker.php", None, "a worker script", Runs::Worker),
    Sign::new("public/index.php", None, PLAIN, Runs::Below("public")),
    Sign::new("web/index.php", None, PLAIN, Runs::Below("web")),
    Sign::new("webroot/index.php", None, PLAIN, Runs::Below("webroot")),
    Sign::new("htdocs/index.php", None, PLAIN, Runs::Below("htdocs")),
    Sign::new("index.php", None, PLAIN, Runs::Below("")),
];

const PLAIN: &str = "a PHP application";
/// Folders that are made to be a document root.
pub(crate) const PUBLIC: [&str; 4] = ["public", "web", "webroot", "htdocs"];
/// The pool of the front controller alone.
pub(crate) const FRONT: &str = "front";
/// What stands for a folder of scripts.
const INDEX: &str = "index.php";
/// A worker's script is short; what it includes is not looked at.
const LONGEST_SCRIPT: u64 = 64 << 10;
/// A `composer.json` that people write has some kilobytes.
const LONGEST_COMPOSER_FILE: u64 = 1 << 20;

impl Sign {
    const fn new(
        file: &'static str,
        with: Option<&'static str>,
        name: &'static str,
        runs: Runs,
    ) -> Self {
        Self {
            file,
            with,
            name,
            runs,
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        let file = folder.join(self.file);
        // A script of this name may be some other program's worker.
        let fits = self.runs != Runs::Worker || waits_for_calls(&file).unwrap_or(false);
        let with = self.with.is_none_or(|with| folder.join(with).is_file());
        fits && with && file.exists()
    }
}

/// An application that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Application {
    folder: PathBuf,
    /// What it is, in words.
    pub(crate) name: String,
    /// The file that told it.
    pub(crate) sign: String,
    runs: Found,
    /// Paths that `.htaccess` files of its root close.
    closed: Closed,
    /// Files of visitors that a link in the document root leads to.
    linked: Option<Linked>,
    /// Signs of other applications in the same folder.
    pub(crate) others: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Scripts {
        root: PathBuf,
        /// Answers paths without a file; None where the root has no index.
        fallback: Option<String>,
        rules: Rules,
    },
    Worker(PathBuf),
    Framework {
        script: PathBuf,
        env: Option<(&'static str, &'static str)>,
    },
}

/// How an application is run, with paths relative to its folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Relative {
    Worker {
        script: String,
        env: Option<(&'static str, &'static str)>,
        /// What lies in `public` is sent without PHP.
        has_public: bool,
    },
    Scripts {
        root: String,
        rules: Rules,
    },
}

/// A folder outside of the document root whose files are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Linked {
    /// Below this path.
    pub(crate) prefix: &'static str,
    pub(crate) folder: PathBuf,
}

/// What of a document root does not run, and what is not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Folders by their paths below it: what is uploaded there never runs.
    pub(crate) no_scripts: Vec<String>,
    /// As of `http.pool.forbid`.
    pub(crate) forbid: &'static [&'static str],
}

impl Application {
    /// The first one that a folder shows.
    pub(crate) fn in_folder(folder: &Path) -> Option<Self> {
        let mut signs = SIGNS.iter().filter(|sign| sign.is_in(folder));
        let first = signs.next()?;
        let runs = match first.runs {
            Runs::Below(below) => {
                let root: PathBuf = folder.join(below).components().collect();
                Found::Scripts {
                    rules: known::rules(&root),
                    root,
                    fallback: Some(INDEX.to_owned()),
                }
            }
            Runs::Worker => Found::Worker(folder.join(first.file)),
            Runs::Framework(script, env) => Found::Framework {
                script: folder.join(script),
                env,
            },
        };
        let root = match &runs {
            Found::Scripts { root, .. } => Some(root.clone()),
            Found::Framework { .. } => Some(folder.join("public")),
            Found::Worker(_) => None,
        };
        let found = Self {
            folder: folder.to_owned(),
            name: named(folder, first),
            sign: first.file.to_owned(),
            closed: root.as_deref().map(Closed::below).unwrap_or_default(),
            linked: root.as_deref().and_then(known::linked),
            runs,
            others: others(first, signs),
        };
        Some(found.without_closed_files())
    }

    /// Files are sent without PHP before routes are asked: none below paths that are closed.
    fn without_closed_files(mut self) -> Self {
        let closed = &mut self.closed;
        if let Some(prefix) = self.linked.as_ref().map(|it| it.prefix)
            && closed.meets(prefix)
        {
            self.linked = None;
            let text = format!("files of `{prefix}` are not sent without PHP, as some are closed");
            closed.told.push(text);
        }
        if matches!(self.runs, Found::Framework { .. }) && !self.sends_public() {
            let text = "files of `public` are not sent, as some are closed";
            self.closed.told.push(text.to_owned());
        }
        self
    }

    /// Whether some paths have a pool that sends no files.
    pub(crate) fn has_front_pool(&self) -> bool {
        let is_scripts = matches!(self.runs, Found::Scripts { .. });
        is_scripts && !self.closed.front.is_empty() && !self.closed.sends_nothing()
    }

    /// Whether what lies in `public` is sent without PHP.
    pub(crate) fn sends_public(&self) -> bool {
        matches!(self.runs, Found::Framework { .. }) && !self.closed.meets("")
    }

    /// A folder of scripts as it is, whatever is in it.
    pub(crate) fn root(folder: &Path) -> Self {
        let has_index = folder.join(INDEX).is_file();
        let name = known::name(folder);
        let found = Self {
            folder: folder.to_owned(),
            name: name.unwrap_or("a folder of scripts and files").to_owned(),
            sign: "--root".to_owned(),
            runs: Found::Scripts {
                root: folder.to_owned(),
                fallback: has_index.then(|| INDEX.to_owned()),
                rules: known::rules(folder),
            },
            closed: Closed::below(folder),
            linked: known::linked(folder),
            others: Vec::new(),
        };
        found.without_closed_files()
    }

    /// A script: a worker, or where it is called `index.php` and waits for no calls a front
    /// controller.
    pub(crate) fn script(script: &Path) -> io::Result<Self> {
        let folder = script.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        let sign = script
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_index = script.ends_with(INDEX) && !waits_for_calls(script)?;
        Ok(if is_index {
            Self {
                sign,
                ..Self::root(&folder)
            }
        } else {
            Self {
                name: "a worker script".to_owned(),
                sign,
                runs: Found::Worker(script.to_owned()),
                closed: Closed::default(),
                linked: None,
                others: Vec::new(),
                folder,
            }
        })
    }

    /// The keys that serve it.
    pub(crate) fn keys(&self) -> Vec<Preset> {
        let mut keys = self.keys_of_runs();
        for (nth, (path, status)) in self.closed.routes.iter().enumerate() {
            keys.push(Preset::list(format!("http.routes[{nth}].path"), [path]));
            keys.push(Preset::text(format!("http.routes[{nth}].refuse"), status));
        }
        keys.extend(self.keys_of_front());
        let endings = self.closed.endings();
        if self.sends_public() && !endings.is_empty() {
            keys.push(Preset::list("http.static.forbid", &endings));
        }
        keys.push(Preset::list("http.middleware", self.middleware()));
        if let Some(Linked { prefix, folder }) = &self.linked {
            keys.push(Preset::text("http.static.serve[0].prefix", prefix));
            keys.push(Preset::text("http.static.serve[0].root", directory(folder)));
            if !endings.is_empty() {
                keys.push(Preset::list("http.static.serve[0].forbid", &endings));
            }
        }
        keys
    }

    /// The middleware that serves it, the innermost first.
    pub(crate) fn middleware(&self) -> &'static [&'static str] {
        if self.sends_public() || self.linked.is_some() {
            &["static", "compress"]
        } else {
            &["compress"]
        }
    }

    /// The folder that a link in the document root leads to, relative to the application's.
    pub(crate) fn linked(&self) -> Option<(&'static str, String)> {
        let linked = self.linked.as_ref()?;
        let below = linked.folder.strip_prefix(&self.folder);
        let folder = below.unwrap_or(&linked.folder);
        Some((linked.prefix, directory(folder)))
    }

    /// The path that no configuration can hold, because it is not UTF-8.
    pub(crate) fn path_without_text(&self) -> Option<&Path> {
        let (Found::Worker(path)
        | Found::Framework { script: path, .. }
        | Found::Scripts { root: path, .. }) = &self.runs;
        path.to_str().is_none().then_some(path)
    }

    fn keys_of_runs(&self) -> Vec<Preset> {
        let command = |script: &Path| {
            Preset::list(
                "server.command",
                [Path::new("php").display(), script.display()],
            )
        };
        match &self.runs {
            Found::Worker(script) => vec![command(script)],
            Found::Framework { script, env } => {
                let mut keys = vec![command(script)];
                if self.sends_public() {
                    let root = self.folder.join("public");
                    keys.push(Preset::text("http.static.dir", root.display()));
                }
                keys.extend(
                    env.map(|(name, value)| Preset::text(format!("server.env.{name}"), value)),
                );
                keys
            }
            Found::Scripts { root, rules, .. } => {
                let mut keys = vec![
                    Preset::text("http.pool.mode", "classic"),
                    Preset::text("http.pool.root", directory(root)),
                ];
                let Rules { no_scripts, forbid } = rules;
                let forbid = if self.closed.sends_nothing() {
                    &["*"]
                } else {
                    *forbid
                };
                let no_scripts = [&no_scripts[..], &self.closed.no_scripts].concat();
                if !no_scripts.is_empty() {
                    keys.push(Preset::list("http.pool.no_scripts", no_scripts));
                }
                if !forbid.is_empty() {
                    keys.push(Preset::list("http.pool.forbid", forbid));
                }
                keys
            }
        }
    }

    /// Routes of paths that the front controller alone answers, after those that refuse.
    fn keys_of_front(&self) -> Vec<Preset> {
        let Found::Scripts { root, .. } = &self.runs else {
            return Vec::new();
        };
        let mut keys = Vec::new();
        let first = self.closed.routes.len();
        for (nth, path) in (first..).zip(&self.closed.front) {
            keys.push(Preset::list(format!("http.routes[{nth}].path"), [path]));
            keys.push(Preset::text(format!("http.routes[{nth}].scripts"), "front"));
            if !self.closed.sends_nothing() {
                keys.push(Preset::text(format!("http.routes[{nth}].pool"), FRONT));
            }
        }
        if self.has_front_pool() {
            let key = |name: &str| format!("http.pools.{FRONT}.{name}");
            keys.push(Preset::text(key("mode"), "classic"));
            keys.push(Preset::text(key("root"), directory(root)));
            keys.push(Preset::list(key("forbid"), ["*"]));
        }
        keys
    }

    /// What runs for a request, in words.
    pub(crate) fn runs(&self) -> String {
        match &self.runs {
            Found::Worker(script) | Found::Framework { script, .. } => {
                format!("`{}`, kept between requests", script.display())
            }
            Found::Scripts { root, fallback, .. } => {
                let root = root.display();
                let others = fallback.as_ref().map_or_else(
                    || format!("it has no `{INDEX}`, so paths without a file are answered 404"),
                    |index| format!("paths without a file go to its `{index}`"),
                );
                format!("scripts and files below `{root}`; {others}")
            }
        }
    }

    /// Paths that `.htaccess` files of its root close.
    pub(crate) fn closed(&self) -> Option<&Closed> {
        (!self.closed.is_empty()).then_some(&self.closed)
    }

    /// What a configuration in the application's folder says.
    pub(crate) fn relative(&self) -> Relative {
        let shown = |path: &Path| {
            let path = path.strip_prefix(&self.folder).unwrap_or(path);
            if path.as_os_str().is_empty() {
                ".".to_owned()
            } else {
                path.display().to_string()
            }
        };
        match &self.runs {
            Found::Worker(script) => Relative::Worker {
                script: shown(script),
                env: None,
                has_public: false,
            },
            Found::Framework { script, env } => Relative::Worker {
                script: shown(script),
                env: *env,
                has_public: self.sends_public(),
            },
            Found::Scripts { root, rules, .. } => Relative::Scripts {
                root: shown(root),
                rules: rules.clone(),
            },
        }
    }

    /// Of a worker script that names no package for workers: it may be a page, which a server runs
    /// once for each request.
    pub(crate) fn is_perhaps_a_page(&self) -> Option<String> {
        let Found::Worker(script) = &self.runs else {
            return None;
        };
        let is_worker = waits_for_calls(script).unwrap_or(true);
        (!is_worker).then(|| {
            format!(
                "`{}` is started as a worker, which waits for requests. Is it a page? `pronghorn serve \
                 --root {}` serves its folder",
                self.sign,
                self.folder.display()
            )
        })
    }

    /// What is missing before it can answer, and what to type.
    pub(crate) fn lacks_packages(&self) -> Option<String> {
        let at = |path: &str| self.folder.join(path);
        let text = read_linked(&at("composer.json"), LONGEST_COMPOSER_FILE).ok()?;
        let composer: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let packages = composer["require"].as_object()?;
        // `php` and `ext-json` are none.
        let requires = packages.keys().any(|name| name.contains('/'));
        let vendor = composer["config"]["vendor-dir"]
            .as_str()
            .unwrap_or("vendor");
        let is_there = at(vendor).join("autoload.php").exists();
        (requires && !is_there).then(|| {
            format!(
                "the application's packages are not installed: run `composer install` in {}",
                self.folder.display()
            )
        })
    }
}

/// A directory's path as a value. Values of paths are read without the blanks around them.
fn directory(path: &Path) -> String {
    let path = path.display().to_string();
    if path.ends_with(char::is_whitespace) {
        path + "/"
    } else {
        path
    }
}

/// What `serve` looks for in a folder, in order.
pub(crate) fn looked_for() -> Vec<&'static str> {
    SIGNS.iter().map(|sign| sign.file).collect()
}

/// Another application, not another sign of the same.
fn others<'a>(first: &Sign, signs: impl Iterator<Item = &'a Sign>) -> Vec<&'static str> {
    let other = |sign: &&Sign| sign.name != first.name && sign.name != PLAIN;
    signs.filter(other).map(|sign| sign.file).collect()
}

/// By a framework that has no file of its own.
fn named(folder: &Path, sign: &Sign) -> String {
    let needs = |package: &str| {
        let text = read_linked(&folder.join("composer.json"), LONGEST_COMPOSER_FILE);
        let text = text.unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&format!("\"{package}\""))
    };
    match sign.name {
        PLAIN if needs("slim/slim") => "Slim".to_owned(),
        PLAIN if needs("mezzio/mezzio") => "Mezzio".to_owned(),
        PLAIN => match sign.runs {
            Runs::Below(below) => known::name(&folder.join(below)).unwrap_or(PLAIN).to_owned(),
            _ => PLAIN.to_owned(),
        },
        name => name.to_owned(),
    }
}

/// Whether a script names a package that takes calls.
fn waits_for_calls(script: &Path) -> io::Result<bool> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = open_linked(script)?;
    // What is no text waits for nothing.
    _ = file.take(LONGEST_SCRIPT).read_to_string(&mut text);
    Ok(["Pronghorn\\", "RoadRunner\\", "Goridge\\"]
        .iter()
        .any(|name| text.contains(name)))
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn a_path_that_is_not_utf_8_is_no_setting() {
        use std::os::unix::ffi::OsStrExt;
        let path = |name: &[u8]| Path::new("/srv").join(std::ffi::OsStr::from_bytes(name));
        let named = path(b"caf\xe9");
        let found = Application::root(&named);
        assert_eq!(found.path_without_text(), Some(&*named));
        assert_eq!(
            Application::root(&path(b"caf\xc3\xa9")).path_without_text(),
            None
        );
    }

    #[test]
    fn applications_are_known_by_their_files() {
        let index = ("public/index.php", "");
        for (files, name, root) in [
            (&[("artisan", ""), index][..], "Laravel", "public"),
            (&[("bin/console", ""), index], "Symfony", "public"),
            (
                &[("wp-config.php", ""), ("index.php", "")],
                "WordPress",
                ".",
            ),
            (&[("wp-load.php", ""), ("index.php", "")], "WordPress", "."),
            (
                &[("composer.json", r#"{"require":{"slim/slim":"4"}}"#), index],
                "Slim",
                "public",
            ),
            (&[index, ("index.php", "")], PLAIN, "public"),
            (&[("web/index.php", "")], PLAIN, "web"),
            (&[("index.php", "")], PLAIN, "."),
        ] {
            let directory = Directory::with(files);
            let found = Application::in_folder(&directory).unwrap();
            let Relative::Scripts { root: at, .. } = found.relative() else {
                panic!("{found:?}")
            };
            assert_eq!((&*found.name, &*at), (name, root));
            assert!(
                found
                    .keys()
                    .iter()
                    .any(|key| *key == Preset::text("http.pool.mode", "classic"))
            );
            assert!(found.others.is_empty(), "{:?}", found.others);
        }
        assert_eq!(Application::in_folder(&Directory::with(&[("a", "")])), None);
    }

    #[test]
    fn frameworks_are_kept_by_packages_of_ours() {
        let index = ("public/index.php", "");
        for (package, files, script, env) in [
            (
                "laravel",
                &[("artisan", ""), index][..],
                "vendor/bin/pronghorn-laravel",
                None,
            ),
            (
                "symfony-runtime",
                &[("bin/console", ""), index],
                "public/index.php",
                Some(("APP_RUNTIME", r"Pronghorn\Symfony\Runtime")),
            ),
        ] {
            let package = format!("vendor/pronghorn/{package}/composer.json");
            let directory = Directory::with(&[files, &[(&*package, "{}")]].concat());
            let found = Application::in_folder(&directory).unwrap();
            let expected = Relative::Worker {
                script: script.to_owned(),
                env,
                has_public: true,
            };
            assert_eq!(found.relative(), expected);
            assert!(found.others.is_empty(), "{:?}", found.others);
        }
    }

    #[test]
    fn two_applications_in_one_folder_are_both_named() {
        let directory = Directory::with(&[
            ("artisan", ""),
            ("public/index.php", ""),
            ("wp-load.php", ""),
        ]);
        let found = Application::in_folder(&directory).unwrap();
        assert_eq!(
            (&*found.name, &found.others[..]),
            ("Laravel", &["wp-load.php"][..])
        );
    }

    #[test]
    fn a_script_is_a_worker_or_a_front_controller() {
        let directory = Directory::with(&[
            ("index.php", "<?php echo 1;"),
            ("kept/index.php", "<?php Pronghorn\\serve($handler);"),
            ("app.php", "<?php"),
        ]);
        let of = |file: &str| Application::script(&directory.join(file)).unwrap();
        let is_worker = |file: &str| matches!(of(file).relative(), Relative::Worker { .. });
        assert!(!is_worker("index.php"));
        assert!(is_worker("kept/index.php") && is_worker("app.php"));
        assert_eq!(of("kept/index.php").is_perhaps_a_page(), None);
        let hint = of("app.php").is_perhaps_a_page().unwrap();
        assert!(hint.contains("serve --root "), "{hint}");
        assert!(Application::script(&directory.join("none/index.php")).is_err());
    }

    #[test]
    fn packages_that_are_not_installed_are_told() {
        for (composer, vendor, is_told) in [
            (
                r#"{"require": {"php": "^8.1", "slim/slim": "^4"}}"#,
                None,
                true,
            ),
            (r#"{"require": {"slim/slim": "^4"}}"#, Some("vendor"), false),
            (r#"{"require": {"slim/slim": "^4"}}"#, Some("lib"), true),
            (
                r#"{"require": {"slim/slim": "^4"}, "config": {"vendor-dir": "lib"}}"#,
                Some("lib"),
                false,
            ),
            (
                r#"{"require": {"php": "^8.1", "ext-json": "*"}}"#,
                None,
                false,
            ),
            (
                r#"{"require-dev": {"phpunit/phpunit": "^10"}}"#,
                None,
                false,
            ),
            ("{", None, false),
        ] {
            let directory = Directory::with(&[("index.php", ""), ("composer.json", composer)]);
            if let Some(vendor) = vendor {
                directory.write(&format!("{vendor}/autoload.php"), "");
            }
            let found = Application::in_folder(&directory).unwrap();
            let told = found.lacks_packages();
            assert_eq!(told.is_some(), is_told, "{composer} {vendor:?}");
            assert!(told.is_none_or(|it| it.contains("composer install")));
        }
    }
}
