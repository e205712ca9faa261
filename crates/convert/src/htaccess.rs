//! `.htaccess` files below a root. Nobody reads them on the way of a request here; but what they
//! close was closed when the application was installed, so it is looked for, and closed as well.

use std::path::Path;

use pronghorn_base::read_linked;

use super::apache;
use super::draft::{Draft, Site};

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
        let mut directories = vec![(String::new(), 0)];
        let mut seen = 0;
        while let Some((directory, depth)) = directories.pop() {
            seen += 1;
            if seen > MOST_DIRECTORIES {
                let text =
                    format!("more than {MOST_DIRECTORIES} directories: not all were looked at");
                closed.told.push(text);
                break;
            }
            let here = root.join(directory.trim_start_matches('/'));
            for entry in std::fs::read_dir(&here).into_iter().flatten().flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                // Hidden ones are never sent.
                if is_directory
                    && depth < DEEPEST
                    && !name.starts_with('.')
                    && name != "node_modules"
                {
                    directories.push((format!("{directory}/{name}"), depth + 1));
                }
            }
            let bytes = read_linked(&here.join(".htaccess"), LONGEST).unwrap_or_default();
            if let Ok(text) = String::from_utf8(bytes)
                && !text.is_empty()
            {
                closed.read(&directory, &text, &mut site);
            }
        }
        closed.files.sort();
        let (routes, left) = site.closing_routes(MOST_ROUTES);
        closed.routes = routes;
        if left > 0 {
            closed
                .told
                .push(format!("{left} more paths, beyond {MOST_ROUTES}"));
        }
        closed.no_scripts = site.without_scripts();
        closed
    }

    fn read(&mut self, directory: &str, text: &str, site: &mut Site) {
        let file = format!("{}/.htaccess", directory.trim_start_matches('/'));
        let file = file.trim_start_matches('/').to_owned();
        let before = (site.rules.len(), site.without_scripts().len());
        let mut draft = Draft::of(&file);
        let read = apache::read_directory(directory, text, site, &mut draft);
        if let Err(why) = read {
            self.told.push(format!("`{file}`: {why}"));
        }
        if site.rules.len() + site.without_scripts().len() > before.0 + before.1 {
            self.files.push(file);
        }
        self.told.append(&mut draft.limits);
    }

    /// Whether they close anything.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.no_scripts.is_empty() && self.told.is_empty()
    }
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
