//! The keys of pools that run scripts below a root.

use std::path::PathBuf;

use pronghorn_config::{Choice, Table};
use pronghorn_process::file::Links;

use super::Mode;

/// What stands for a folder. The second is for folders of pages beside an application.
const INDEX: [&str; 2] = ["index.php", "index.html"];
/// Each is looked for in every folder that somebody asks for.
const MOST_INDEX: usize = 16;
/// Each is compared with every path that names a script.
const MOST_NO_SCRIPTS: usize = 64;
/// Each is compared with every file that is looked at.
const MOST_FORBIDDEN: usize = 128;
/// Names of servers with their modules are shorter.
const LONGEST_SOFTWARE: usize = 256;
/// For `fallback`: there is none.
const NONE: &str = "none";
const SCRIPT: &str = ".php";

/// Where scripts are, and which of them answers for a path.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// As it was written: relative to the server's folder.
    pub root: PathBuf,
    /// Names that stand for a folder.
    pub index: Vec<String>,
    /// By its path below the root.
    pub fallback: Option<String>,
    /// Folders below the root in which nothing runs.
    pub no_scripts: Vec<String>,
    /// Files below the root that are not sent: endings, names, and paths.
    pub forbid: Vec<String>,
    pub links: Links,
    pub resolve: ResolveRoot,
    /// `SERVER_SOFTWARE`, if it is not our own.
    pub software: Option<String>,
}

/// Of pools that start an executable for each call.
#[derive(Clone, Debug)]
pub struct CgiSettings {
    pub site: SiteSettings,
    /// Programs see no more of the environment than what is named for them.
    pub clear_env: bool,
}

/// Which symbolic links are followed below a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symlinks(pub Links);

impl Choice for Symlinks {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("never", Self(Links::Never)),
        ("inside", Self(Links::Inside)),
        ("anywhere", Self(Links::Anywhere)),
    ];
}

/// When links in the path of the root itself are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveRoot {
    /// Never: scripts see the root as it was written.
    Never,
    /// For each request: scripts see where it really is.
    EachRequest,
}

impl Choice for ResolveRoot {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("never", Self::Never), ("each_request", Self::EachRequest)];
}

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> Option<SiteSettings> {
    let message = "is of pools that run scripts below a root, and this one runs a worker script";
    let hint = "write `mode: classic` beside it, or remove it";
    t.keys_where(mode != Mode::Worker, message, hint, |t| read_site(t, mode))
}

/// Whether scripts see no more of the environment than what is named for them.
pub(super) fn read_clear_env(t: &mut Table<'_>, mode: Mode) -> bool {
    let message = "is of pools that run scripts or programs, and this one runs a worker script";
    let holds = mode != Mode::Worker;
    let clear_env = t.keys_where(holds, message, "remove it", |t| {
        t.key(
            "clear_env",
            "Whether scripts get a clean environment, as under php-fpm: only `server.env`, `HOME` \
             and `USER`. php-cgi and programs also get `TMPDIR`, and programs get `PATH`. For \
             pools whose `mode` is not `worker`.",
        )
        .ours()
        .default(true)
    });
    clear_env.unwrap_or(true)
}

fn read_site(t: &mut Table<'_>, mode: Mode) -> SiteSettings {
    let root: Option<PathBuf> = t
        .key(
            "root",
            "The directory of a site. Its scripts run; its other files are sent. This key and the \
             next seven are only for pools whose `mode` is not `worker`.",
        )
        .ours()
        .optional();
    let message =
        "is of pools that run PHP scripts, and `mode: cgi` runs whatever program is asked for";
    let php = t.keys_where(mode != Mode::Cgi, message, "remove it", read_php);
    let (index, fallback, no_scripts, forbid) = php.unwrap_or_default();
    let links = t
        .key::<Symlinks>(
            "symlinks",
            "Which symbolic links below the root are followed: `never` none, `inside` those that \
             stay in the root, `anywhere` all.",
        )
        .ours()
        .default(Symlinks(Links::Inside));
    // As nginx's $document_root. Whoever's root is no link that moves would pay for nothing.
    let resolve = t
        .key(
            "resolve_root",
            "When symbolic links in the path of `root` itself are resolved. `never`: scripts see \
             the path as written. `each_request`: a deployment that changes such a link takes \
             effect at once, as with nginx's `$realpath_root`.",
        )
        .ours()
        .default(ResolveRoot::Never);
    let software: Option<String> = t
        .key(
            "server_software",
            "The value of `SERVER_SOFTWARE` for scripts. By default, `pronghorn/` and the version. \
             Some programs use it to find out what the server can do.",
        )
        .ours()
        .optional();
    let is_shown = |text: &String| {
        (1..=LONGEST_SOFTWARE).contains(&text.len())
            && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
    };
    if software.as_ref().is_some_and(|text| !is_shown(text)) {
        t.error(
            "server_software",
            &format!(
                "is no name of a server: 1 to {LONGEST_SOFTWARE} visible characters of ASCII are"
            ),
            "for example `server_software: nginx/1.26`",
        );
    }
    if root.is_none() {
        t.error(
            "mode",
            "needs a `root`, the folder of the site, and there is none",
            "for example `root: public` beside it",
        );
    }
    SiteSettings {
        root: root.unwrap_or_default(),
        index,
        fallback,
        no_scripts,
        forbid,
        links: links.0,
        resolve,
        software,
    }
}

/// `index`, the script of `fallback`, `no_scripts` and `forbid`.
fn read_php(t: &mut Table<'_>) -> (Vec<String>, Option<String>, Vec<String>, Vec<String>) {
    let index: Vec<String> = t
        .key(
            "index",
            "Scripts and files that answer a request for a directory. The first one that exists is \
             used.",
        )
        .ours()
        .default(INDEX.map(str::to_owned).into());
    let usual = index.iter().find(|name| name.ends_with(SCRIPT));
    let usual = usual.map_or_else(|| NONE.to_owned(), Clone::clone);
    let fallback: String = t
        .key(
            "fallback",
            "The script that answers requests for paths without a file, as a path below the root. \
             With `none`, such requests are answered 404.",
        )
        .ours()
        .default_as(usual, "the first script of `index`");
    if index.len() > MOST_INDEX {
        let message = format!("has {} names; at most {MOST_INDEX} are taken", index.len());
        t.error("index", &message, "leave out those that no folder has");
    }
    if let Some(name) = index
        .iter()
        .find(|name| name.contains('/') || !is_name(name))
    {
        let message = format!("has `{}`, which is no name of a file", name.escape_debug());
        t.error("index", &message, "for example `index: [index.php]`");
    }
    let fallback = Some(fallback.trim_start_matches('/').to_owned()).filter(|it| it != NONE);
    if let Some(script) = &fallback
        && !(script.ends_with(SCRIPT) && script.split('/').all(is_name))
    {
        let message = format!(
            "is `{}`, which is no script below the root",
            script.escape_debug()
        );
        t.error(
            "fallback",
            &message,
            "for example `fallback: index.php`, or `none`",
        );
    }
    let no_scripts = read_no_scripts(t, fallback.as_deref());
    let forbid = read_forbid(t);
    (index, fallback, no_scripts, forbid)
}

fn read_forbid(t: &mut Table<'_>) -> Vec<String> {
    let forbid: Vec<String> = t
        .key(
            "forbid",
            "Files below the root that are not sent. A pattern matches by extension (`.sql`), by \
             the end of a name (`*~`), by name (`composer.json`) or, if it contains a slash, by \
             path (`storage/logs/`). Upper and lower case are equal. `*` matches all files and \
             `app/*` all files below a directory, but not scripts. If a path names a directory, \
             its scripts do not run either. Compressed copies of these files are not sent. PHP \
             sources and names that begin with a dot are never sent.",
        )
        .ours()
        .default(Vec::new());
    let example = "for example `forbid: [.sql, composer.json, storage/logs/]`";
    if forbid.len() > MOST_FORBIDDEN {
        let message = format!(
            "has {} items; at most {MOST_FORBIDDEN} are taken",
            forbid.len()
        );
        t.error("forbid", &message, "name a directory above some of them");
    }
    let is_item = |item: &&String| {
        // A star stands for the start of a name, or for all of one.
        let item = item.strip_suffix("/*").unwrap_or(item);
        let tail = item
            .strip_prefix('*')
            .filter(|it| !it.is_empty() && !it.contains('/'));
        let parts = tail.unwrap_or(item).trim_matches('/').split('/');
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['*', '\0']);
        item == "*" || parts.into_iter().all(is_part)
    };
    if let Some(item) = forbid.iter().find(|item| !is_item(item)) {
        let message = format!(
            "has `{}`, which is no ending, no name and no path below the root",
            item.escape_debug()
        );
        t.error("forbid", &message, example);
    }
    forbid
}

fn read_no_scripts(t: &mut Table<'_>, fallback: Option<&str>) -> Vec<String> {
    let folders: Vec<String> = t
        .key(
            "no_scripts",
            "Directories in which no script runs, such as those for uploads, as paths below the \
             root. A request for a script there is answered 404.",
        )
        .ours()
        .default(Vec::new());
    let folders: Vec<String> = folders
        .iter()
        .map(|folder| folder.trim_matches('/').to_owned())
        .collect();
    let example = "for example `no_scripts: [uploads]`";
    if folders.len() > MOST_NO_SCRIPTS {
        let message = format!(
            "has {} folders; at most {MOST_NO_SCRIPTS} are taken",
            folders.len()
        );
        t.error("no_scripts", &message, "name a folder above them");
    }
    if let Some(folder) = folders.iter().find(|it| !it.split('/').all(is_name)) {
        let message = format!(
            "has `{}`, which is no folder below the root",
            folder.escape_debug()
        );
        t.error("no_scripts", &message, example);
    }
    let is_below = |folder: &&String| {
        let rest = fallback.and_then(|script| script.strip_prefix(folder.as_str()));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    if let Some(folder) = folders.iter().find(is_below) {
        let message = format!("has `{folder}`, in which the script of `fallback` lies");
        t.error("no_scripts", &message, example);
    }
    folders
}

/// Whether clients may see a name: not hidden, and no more than one segment of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['\\', '\0'])
}
