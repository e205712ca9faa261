//! `.htaccess` files below a root. Nobody reads them on the way of a request here; but what they
//! close was closed when the application was installed, so it is looked for, and closed as well.

use std::io;
use std::path::Path;

use pronghorn_base::read_linked;

use super::apache;
use super::draft::{Draft, Site, is_in};

/// A larger tree is a project with all its packages, of which the first directories count.
const MOST_DIRECTORIES: usize = 10_000;
/// Deeper ones are no part of a site.
const DEEPEST: usize = 12;
/// A longer file is none that a person wrote.
const LONGEST: u64 = 256 << 10;
/// More routes make each request slower.
const MOST_ROUTES: usize = 200;

/// Paths that `.htaccess` files close.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Patterns of routes, and the status that each is answered with.
    pub routes: Vec<(String, String)>,
    /// Directories by their paths below the root in which no script runs.
    pub no_scripts: Vec<String>,
    /// The files that close something, by their paths below the root.
    pub files: Vec<String>,
    /// Limits that are not in all this.
    pub told: Vec<String>,
}

impl Closed {
    /// By the files below a root.
    pub fn below(root: &Path) -> Self {
        let mut site = Site {
            root: Some("/".to_owned()),
            ..Site::default()
        };
        let mut closed = Self::default();
        for (directory, text) in files(root, &mut closed.told) {
            let text = text.as_deref();
            let read = read((&directory, text), "", false, &mut site, &mut closed.told);
            closed.files.extend(read);
        }
        closed.files.sort();
        // A rule that can't be said closes all: so it is told, and so it is.
        if let Some(status) = site.closed.take() {
            closed.routes.push(("/*".to_owned(), status));
        }
        let (routes, left) = site.closing_routes(MOST_ROUTES);
        closed.routes.extend(routes);
        if left > 0 {
            closed
                .told
                .push(format!("{left} more paths, beyond {MOST_ROUTES}"));
        }
        closed.no_scripts = site.without_scripts();
        closed
    }

    /// Whether they close anything.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.no_scripts.is_empty() && self.told.is_empty()
    }
}

/// The `.htaccess` files below a root: the path below it of the directory that each is in, and its
/// text; none of one that can't be read. `told` has what was not looked at.
fn files(root: &Path, told: &mut Vec<String>) -> Vec<(String, Option<String>)> {
    let mut files = Vec::new();
    let mut directories = vec![(String::new(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = directories.pop() {
        seen += 1;
        if seen > MOST_DIRECTORIES {
            told.push(format!(
                "more than {MOST_DIRECTORIES} directories: not all were looked at"
            ));
            break;
        }
        let here = root.join(directory.trim_start_matches('/'));
        for entry in std::fs::read_dir(&here).into_iter().flatten().flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // Hidden ones are never sent.
            if is_directory && depth < DEEPEST && !name.starts_with('.') && name != "node_modules" {
                directories.push((format!("{directory}/{name}"), depth + 1));
            }
        }
        match read_linked(&here.join(".htaccess"), LONGEST).map(String::from_utf8) {
            Ok(Ok(text)) if !text.is_empty() => files.push((directory, Some(text))),
            Ok(Ok(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Err(_)) => files.push((directory, None)),
            Err(_) => files.push((directory, None)),
        }
    }
    files
}

/// The file of a directory, for a person.
fn shown(directory: &str) -> String {
    format!("{}/.htaccess", directory.trim_start_matches('/'))
        .trim_start_matches('/')
        .to_owned()
}

/// Reads one file of a directory below a root, which is at the path `prefix`. Its name, if it
/// closes something.
fn read(
    (directory, text): (&str, Option<&str>),
    prefix: &str,
    closes_root: bool,
    site: &mut Site,
    told: &mut Vec<String>,
) -> Option<String> {
    let file = shown(directory);
    let before = (
        site.rules.len(),
        site.without_scripts().len(),
        site.is_closed(),
    );
    let mut draft = Draft::of(&file);
    let below = format!("{prefix}{directory}");
    let read = match text {
        Some(text) => apache::read_directory(&below, text, closes_root, site, &mut draft),
        None => Err("it can't be read".to_owned()),
    };
    if let Err(why) = read {
        // Whatever it says may be a limit, and Apache answers nothing there.
        let is_closed = !below.is_empty() || closes_root;
        if is_closed {
            site.close(&below);
        }
        let outcome = if is_closed { "closed" } else { "not closed" };
        told.push(format!("`{file}`: {why}: its directory is {outcome}"));
    }
    told.append(&mut draft.limits);
    let after = (
        site.rules.len(),
        site.without_scripts().len(),
        site.is_closed(),
    );
    (after != before).then_some(file)
}

/// Closes in each site what the `.htaccess` files close that Apache read: below its root, and in
/// other directories that it sends files of.
pub(super) fn close_overridden(draft: &mut Draft) {
    let mut sites = std::mem::take(&mut draft.sites);
    for site in &mut sites {
        let files = site.files.iter();
        let mut roots: Vec<_> = files
            .map(|it| (it.prefix.clone(), it.root.clone()))
            .collect();
        roots.extend(site.root.clone().map(|root| (String::new(), root)));
        for (prefix, root) in roots {
            close_below(&root, &prefix, site, draft);
        }
    }
    draft.sites = sites;
}

/// The same for one root, which is at the path `prefix`.
fn close_below(root: &str, prefix: &str, site: &mut Site, draft: &mut Draft) {
    let directories = site.overridden.iter();
    let directories = directories.filter(|(_, it)| is_in(root, it) || is_in(it, root));
    let directories: Vec<_> = directories.cloned().collect();
    let Some((place, _)) = directories.first().filter(|_| !root.is_empty()) else {
        return;
    };
    if !Path::new(root).is_dir() {
        return draft.limits.push(format!(
            "{place}: `AllowOverride` for `{root}`, which is no directory of this machine: what `.htaccess` \
             files close there is open; run `init` where it is"
        ));
    }
    let mut told = Vec::new();
    let mut closing = Vec::new();
    for (directory, text) in files(Path::new(root), &mut told) {
        let here = format!("{root}{directory}");
        if directories.iter().any(|(_, it)| is_in(&here, it)) {
            let file = (directory.as_str(), text.as_deref());
            closing.extend(read(file, prefix, true, site, &mut told));
        }
    }
    for text in told {
        draft.limits.push(format!("{place}: `{root}`: {text}"));
    }
    if !closing.is_empty() {
        closing.sort();
        draft.note(&format!(
            "closed as `.htaccess` files of `{root}` say it now: `{}`",
            closing.join("`, `")
        ));
    }
}

/// Reads a `.htaccess` that is given by its path beside sites with roots: what it says holds for
/// those in whose root it lies, and for all where it lies in none, for it may be a copy.
pub(super) fn read_file(file: &Path, text: &str, draft: &mut Draft) -> Result<(), String> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let place = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let place = real(place.parent().unwrap_or_else(|| Path::new("/")));
    let below = |root: &Option<String>| -> Option<String> {
        let below = place.strip_prefix(real(Path::new(root.as_deref()?))).ok()?;
        let below = below.to_str()?;
        Some(if below.is_empty() {
            String::new()
        } else {
            format!("/{below}")
        })
    };
    let mut sites = std::mem::take(&mut draft.sites);
    let is_in_one = sites.iter().any(|site| below(&site.root).is_some());
    let mut outcome = Ok(());
    for site in sites.iter_mut().filter(|site| site.root.is_some()) {
        let read = match below(&site.root) {
            Some(directory) if !directory.is_empty() => {
                apache::read_directory(&directory, text, true, site, draft)
            }
            None if is_in_one => continue,
            _ => apache::read_root(text, site, draft),
        };
        outcome = outcome.and(read);
    }
    draft.sites = sites;
    outcome
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn what_they_close_becomes_routes() {
        let root = Directory::with(&[
            (
                ".htaccess",
                "RewriteEngine On\nRewriteRule ^(user)/(.*)\\.(txt|yaml)$ error [F]\n\
                 <FilesMatch \"\\.(sql|log)$\">\nRequire all denied\n</FilesMatch>\n\
                 RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n",
            ),
            ("data/.htaccess", "Require all denied\n"),
            ("old/.htaccess", "order allow,deny\ndeny from all\n"),
            (
                "both/.htaccess",
                "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n\
                 <IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>\n",
            ),
            ("up/.htaccess", "php_flag engine off\n"),
            ("part/.htaccess", "<Files *.php>\ndeny from all\n</Files>\n"),
            (
                "inner/.htaccess",
                "RewriteEngine on\nRewriteRule ^secret - [F]\n",
            ),
            ("only/.htaccess", "Require ip 10.0.0.1\n"),
            (
                "deep/.htaccess",
                "RewriteEngine on\nRewriteRule (^|/)a/ - [F]\nRewriteRule ^b/|^c/ - [F]\n",
            ),
            (
                "away/.htaccess",
                "RewriteEngine on\nRewriteRule ^ /index.php [L]\n",
            ),
            ("open/.htaccess", "Options -Indexes\nRequire all granted\n"),
            (".git/.htaccess", "Require all denied\n"),
        ]);
        let closed = Closed::below(&root);
        let patterns: Vec<_> = closed
            .routes
            .iter()
            .map(|(path, _)| path.as_str())
            .collect();
        for expected in [
            "/data/*",
            "/old/*",
            "/both/*",
            "/only/*",
            "~ ^/(user)/(.*)\\.(txt|yaml)$",
            "~ \\.(sql|log)$",
            "~ ^/part(?:/.*)?/[^/]*\\.php$",
            "~ ^/inner/secret",
            "~ ^/deep/(?:(|/)a/|.*(?:(^|/)a/))",
            "~ ^/deep/(?:b/|c/|.*(?:^b/|^c/))",
            "~ ^/away/",
        ] {
            assert!(patterns.contains(&expected), "{expected} {patterns:#?}");
        }
        assert_eq!(patterns.len(), 11, "{patterns:#?}");
        assert_eq!(closed.no_scripts, ["up"]);
        assert_eq!(closed.files.len(), 10, "{:?}", closed.files);
        assert_eq!(closed.told.len(), 2, "{:?}", closed.told);
        assert!(
            closed.told.iter().any(|it| it.contains("only/.htaccess")),
            "{:?}",
            closed.told
        );
    }
}
