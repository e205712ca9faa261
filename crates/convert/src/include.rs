//! Statements of other files, in the place of the `include` that names them.

use std::path::{Path, PathBuf};

use super::directive::{self, Directive};
use super::draft::Draft;
use super::statements::with_clean_paths;
use super::{Kind, apache, caddy, nginx, read, units};

/// Deeper ones include each other.
const DEEPEST: usize = 16;
/// More are generated, and are better given in parts.
const MOST: usize = 500;

/// A file of nginx, Apache or Caddy with what it includes.
pub(super) struct Includes {
    kind: Kind,
    depth: usize,
    /// The directories in which relative names are looked for, in order.
    places: Vec<PathBuf>,
    /// Apache's, of Debian's `envvars`.
    variables: Vec<(String, String)>,
    /// The files that were included, as the file system knows them.
    pub(super) included: Vec<PathBuf>,
}

impl Includes {
    pub(super) fn new(kind: Kind, path: &Path, text: &str) -> Self {
        let places = places(kind, path, text);
        Self {
            kind,
            depth: 0,
            variables: variables(&places),
            places,
            included: Vec::new(),
        }
    }

    /// The statements of a file, which is the draft's with this number.
    ///
    /// # Errors
    ///
    /// For a person: which of the files is wrong, and why.
    pub(super) fn statements(
        &mut self,
        path: &Path,
        text: &str,
        file: usize,
        draft: &mut Draft,
    ) -> Result<Vec<Directive>, String> {
        self.depth += 1;
        if self.depth > DEEPEST || self.included.len() > MOST {
            return Err(format!(
                "`{}`: files include each other more than {DEEPEST} deep, or more than {MOST} of \
                 them; give the file of one site",
                path.display()
            ));
        }
        let parsed = match self.kind {
            Kind::Apache => {
                units::statements(&self.with_variables(text), file, draft.name_of(file))
                    .map(|all| all.into_iter().map(with_clean_paths).collect())
            }
            Kind::Caddy => directive::caddy(&caddy::with_defaults(text), file),
            _ => units::of_nginx(text, file, draft.name_of(file)),
        };
        let all = parsed.map_err(|why| format!("`{}`, {why}", path.display()))?;
        let snippets = snippets(&all);
        let all = self.with_included(all, &snippets, path, draft);
        self.depth -= 1;
        all
    }

    fn with_included(
        &mut self,
        all: Vec<Directive>,
        snippets: &[String],
        path: &Path,
        draft: &mut Draft,
    ) -> Result<Vec<Directive>, String> {
        let mut out = Vec::new();
        for mut it in all {
            let Some(files) = self.named(&it, snippets, path) else {
                it.inside = self.with_included(it.inside, snippets, path, draft)?;
                out.push(it);
                continue;
            };
            for file in files {
                let text = read(&file).map_err(|why| format!("`{}`: {why}", file.display()))?;
                self.included.extend(file.canonicalize());
                let number = draft.begin(&file);
                out.extend(self.statements(&file, &text, number, draft)?);
            }
        }
        Ok(out)
    }

    /// The files that a statement includes, if it is known which.
    fn named(&self, it: &Directive, snippets: &[String], path: &Path) -> Option<Vec<PathBuf>> {
        let name = it.argument(0);
        let is_known = !name.contains(['$', '{']) && !name.contains("**");
        let is_one = it.inside.is_empty() && it.arguments.len() == 1 && is_known;
        let includes = match self.kind {
            Kind::Apache => {
                (it.is("Include") || it.is("IncludeOptional")) && !apache::is_known_include(name)
            }
            Kind::Caddy => it.name == "import" && !snippets.iter().any(|it| it == name),
            _ => it.name == "include" && !nginx::is_known_include(name),
        };
        if !is_one || !includes {
            return None;
        }
        // Caddy looks beside the file that imports.
        let beside = path.parent().map(Path::to_owned);
        let anywhere = [PathBuf::from("/")];
        let places = match self.kind {
            _ if name.starts_with('/') => &anywhere,
            Kind::Caddy => beside.as_slice(),
            _ => &self.places,
        };
        let mut named = places.iter().map(|place| place.join(name));
        // A directory may be empty, and a name of one file is a mistake.
        let is_there = |it: &Path| {
            name.contains('*') && it.parent().is_some_and(Path::is_dir) || !files(it).is_empty()
        };
        let mut found = files(&named.find(|it| is_there(it))?);
        if self.kind == Kind::Apache && name.ends_with("mods-enabled/*.conf") {
            // The others are the distribution's, about modules that are not here.
            found.retain(|it| it.ends_with("dir.conf"));
        }
        Some(found)
    }

    /// A text with the values of Apache's variables, as far as they are known: those of `Define`
    /// hold from there on, for files that are included, too.
    fn with_variables(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let mut line = line.to_owned();
            for (name, value) in self.variables.iter().rev() {
                line = line.replace(&format!("${{{name}}}"), value);
            }
            let mut words = line.split_whitespace();
            if words
                .next()
                .is_some_and(|it| it.eq_ignore_ascii_case("Define"))
                && let (Some(name), Some(value)) = (words.next(), words.next())
            {
                let value = value.trim_matches(['"', '\'']);
                self.variables.push((name.to_owned(), value.to_owned()));
            }
            out.push_str(&line);
        }
        out
    }
}

/// Names of Caddy's snippets, which come before files of that name.
fn snippets(all: &[Directive]) -> Vec<String> {
    let name = |it: &Directive| Some(it.name.strip_prefix('(')?.strip_suffix(')')?.to_owned());
    all.iter().filter_map(name).collect()
}

/// nginx takes relative names as below the directory of `nginx.conf`, Apache as below its
/// `ServerRoot`. A file of one site lies below that.
fn places(kind: Kind, path: &Path, text: &str) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let above = path.ancestors().skip(1).map(Path::to_owned);
    match kind {
        Kind::Apache => {
            let root = text.lines().find_map(|line| {
                let root = line.trim().strip_prefix("ServerRoot")?;
                Some(PathBuf::from(root.trim().trim_matches('"')))
            });
            let mains = ["apache2.conf", "httpd.conf", "conf/httpd.conf"];
            let is_root = |it: &PathBuf| mains.iter().any(|main| it.join(main).is_file());
            let mut above: Vec<_> = above.filter(is_root).collect();
            above.reverse();
            root.into_iter().chain(above).collect()
        }
        _ => {
            let is_root =
                |(nth, it): &(usize, PathBuf)| *nth == 0 || it.join("nginx.conf").is_file();
            let mut all: Vec<_> = above
                .enumerate()
                .filter(is_root)
                .map(|(_, it)| it)
                .collect();
            all.reverse();
            all
        }
    }
}

/// Debian sets variables of Apache in a script beside its file.
fn variables(places: &[PathBuf]) -> Vec<(String, String)> {
    let mut texts = places.iter().map(|place| read(&place.join("envvars")));
    let text = texts.find_map(Result::ok).unwrap_or_default();
    let variable = |line: &str| {
        let (name, value) = line.trim().strip_prefix("export ")?.split_once('=')?;
        let value = value.trim().replace("$SUFFIX", "");
        let is_plain = !value.contains(['$', '`', '"', '\'']);
        (name.starts_with("APACHE_") && is_plain).then(|| (name.to_owned(), value))
    };
    text.lines().filter_map(variable).collect()
}

/// The files of a name with `*`, `?` and `[…]`, sorted. A directory means the files in it.
fn files(name: &Path) -> Vec<PathBuf> {
    let all = |name: &Path| -> Vec<PathBuf> {
        let found = name.to_str().map(glob::glob);
        let found = found.into_iter().flatten().flatten().flatten();
        found.take(MOST + 1).collect()
    };
    let mut out = Vec::new();
    for found in all(name) {
        if found.is_dir() {
            out.extend(all(&found.join("*")));
        } else {
            out.push(found);
        }
    }
    out.retain(|it| it.is_file());
    out
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use crate::{Converted, convert};

    const PHP: &str = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";

    fn of(directory: &Directory, names: &[&str]) -> Result<Converted, String> {
        let files: Vec<_> = names.iter().map(|name| directory.join(name)).collect();
        convert(&files)
    }

    fn nginx(site: &str) -> Directory {
        Directory::with(&[
            (
                "nginx.conf",
                "events { }\nhttp {\n  include conf.d/*.conf;\n  include sites/*;\n}\n",
            ),
            ("conf.d/limits.txt", "limit_rate 1;"),
            ("sites/a", site),
            ("snippets/closed.conf", "location /closed/ { deny all; }\n"),
        ])
    }

    #[test]
    fn sites_stand_in_the_place_of_their_include() {
        let site = format!(
            "server {{\n server_name a.test; root /srv/a; index index.php;\n include \
             snippets/closed.conf;\n random_index on;\n {PHP} }}\n"
        );
        let directory = nginx(&site);
        // By the main file, by the site alone, and by both, in any order.
        for names in [
            &["nginx.conf"][..],
            &["sites/a"],
            &["nginx.conf", "sites/a"],
            &["sites/a", "nginx.conf"],
        ] {
            let made = of(&directory, names).unwrap();
            assert_eq!(made.yaml.matches("/closed/*").count(), 1, "{}", made.yaml);
            assert_eq!(
                made.yaml.matches("root: /srv/a").count(),
                1,
                "{}",
                made.yaml
            );
            assert!(!made.is_unsure(), "{:?} {:?}", made.limits, made.lost);
            assert_eq!(made.left_out, ["a:4: `random_index on`"], "{names:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        for name in ["snippets/other.conf", "/not/there/*.conf", "$dir/x"] {
            let site = format!("server {{ root /srv; include {name}; {PHP} }}");
            let made = of(&nginx(&site), &["nginx.conf"]).unwrap();
            assert!(
                made.limits.iter().any(|it| it.contains(name)),
                "{name} {:?}",
                made.limits
            );
        }
    }

    #[test]
    fn a_mistake_names_its_file_and_circles_end() {
        let wrong = of(&nginx("server {"), &["nginx.conf"]).unwrap_err();
        assert!(wrong.contains("/sites/a`, line 1"), "{wrong}");
        let circle = of(&nginx("include sites/a;"), &["nginx.conf"]).unwrap_err();
        assert!(circle.contains("16 deep"), "{circle}");
        let wide = "include sites/a; include sites/a;".repeat(3);
        assert!(of(&nginx(&wide), &["nginx.conf"]).is_err());
    }

    #[test]
    fn apache_has_its_hosts_in_other_files_and_limits_around_them() {
        let made = |main: &str, host: &str| {
            let main = format!(
                "User ${{APACHE_RUN_USER}}\nInclude conf-enabled/*.conf\nIncludeOptional \
                 sites-enabled/*.conf\nIncludeOptional mods-enabled/*.conf\n{main}\n"
            );
            let host = format!(
                "<VirtualHost *:80>\nServerName a.test\nDocumentRoot /var/www/html\n{host}\n\
                 </VirtualHost>\n"
            );
            let directory = Directory::with(&[
                ("apache2.conf", &main),
                ("envvars", "export APACHE_RUN_USER=web\n"),
                (
                    "conf-enabled/a.conf",
                    "<FilesMatch \"\\.phps$\">\nRequire all denied\n</FilesMatch>",
                ),
                ("sites-enabled/a.conf", &host),
                ("mods-enabled/dir.conf", "DirectoryIndex start.php\n"),
                ("mods-enabled/mime.conf", "AddLanguage am .amh\n"),
            ]);
            of(&directory, &["apache2.conf"]).unwrap()
        };
        let denied = "<Directory />\nRequire all denied\n</Directory>\n";
        let granted = "<Directory /var/www/>\nRequire all granted\n</Directory>\n";
        let plain = made(&format!("{denied}{granted}"), "");
        assert!(!plain.is_unsure(), "{:?} {:?}", plain.limits, plain.lost);
        assert!(
            plain.yaml.contains("user: web") && plain.yaml.contains("start.php"),
            "{}",
            plain.yaml
        );
        assert!(plain.yaml.contains("phps"), "{}", plain.yaml);
        assert!(plain.left_out.is_empty(), "{:?}", plain.left_out);

        let is_closed = |made: &Converted| made.yaml.contains("- {refuse: 404}");
        assert!(is_closed(&made(denied, "")));
        // A host opens what is as near or nearer, and nothing nearer than that.
        let near = denied.replace("/>", "/var/www>");
        let own = granted.replace("/var/www/", "/var/www/html");
        assert!(is_closed(&made(&near, &granted.replace("/var/www/", "/"))));
        assert!(!is_closed(&made(&near, granted)));
        assert!(!is_closed(&made(&near, &own)));
        assert!(is_closed(&made(&format!("{near}{granted}"), "")));
        let location = "<Location /private>\nRequire ip 10.0.0.0/8\n</Location>";
        let closed = made(location, "");
        assert!(
            closed.yaml.contains("/private") && !is_closed(&closed),
            "{}",
            closed.yaml
        );
    }

    #[test]
    fn caddy_imports_files_beside_the_one_that_says_so() {
        let directory = Directory::with(&[
            (
                "Caddyfile",
                "(common) {\n\tencode gzip\n}\nimport sites/*\n",
            ),
            (
                "sites/a",
                "http://a.test {\n\timport ../closed\n\timport common\n\troot * /srv\n\tphp_fastcgi \
                 :9000\n\tfile_server\n}\n",
            ),
            ("closed", "respond /closed/* 403\n"),
            ("common", "respond 404\n"),
        ]);
        let made = of(&directory, &["Caddyfile"]).unwrap();
        assert!(
            made.yaml.contains("/closed/*") && made.yaml.contains("compress"),
            "{}",
            made.yaml
        );
        assert!(!made.is_unsure(), "{:?} {:?}", made.limits, made.lost);
    }
}
