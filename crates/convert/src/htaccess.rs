//! `.htaccess` files below a root. Nobody reads them on the way of a request here; but what they
//! close was closed when the application was installed, so it is looked for, and closed as well.

use std::io;
use std::path::Path;

use pronghorn_base::read_linked;

use super::apache;
use super::draft::{
    ALL_CLOSED, At, Draft, Rank, Rewriting, Rule, Site, front_alone, is_in, no_scripts, scripts,
};
use super::tree::{Tree, Value};
use super::trial::{self, Listed};
use super::units;

const NAME: &str = ".htaccess";
/// A larger tree is a project with all its packages, of which the first directories count.
const MOST_DIRECTORIES: usize = 10_000;
/// Deeper ones are no part of a site.
const DEEPEST: usize = 24;
/// A longer file is none that a person wrote.
const LONGEST: u64 = 256 << 10;
/// More routes make each request slower.
const MOST_ROUTES: usize = 200;

/// Paths that `.htaccess` files close.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Patterns of routes, and the status that each is answered with.
    pub routes: Vec<(String, String)>,
    /// Patterns of paths that the front controller alone answers, and at which no file is sent.
    pub front: Vec<String>,
    /// Directories by their paths below the root in which no script runs.
    pub no_scripts: Vec<String>,
    /// The files that close something, by their paths below the root.
    pub files: Vec<String>,
    /// Limits that are not in all this, or are more than these files say.
    pub told: Vec<String>,
    /// Paths of the routes, as they were understood.
    ats: Vec<At>,
}

impl Closed {
    /// By the files below a root.
    pub fn below(root: &Path) -> Self {
        let (closed, overlooked) = trial::with_overlooked(|| Some(Self::read(root)), |it| it);
        let mut closed = closed.unwrap_or_default();
        closed.told.extend(overlooked);
        closed
    }

    fn read(root: &Path) -> Self {
        let mut site = Site {
            root: Some("/".to_owned()),
            ..Site::default()
        };
        let mut closed = Self::default();
        for (directory, text) in files(root, &mut closed.told) {
            let text = text.as_deref();
            let told = (&mut closed.told, &mut Vec::new());
            let read = read((&directory, text), "", &mut site, told, true);
            closed.files.extend(read);
        }
        closed.files.sort();
        let (routes, left) = site.closing_routes(MOST_ROUTES);
        closed.routes = routes;
        closed.front = site.front_routes(MOST_ROUTES);
        closed.ats = site.closed_paths();
        if left > 0 {
            closed
                .told
                .push(format!("{left} more paths, beyond {MOST_ROUTES}"));
        }
        closed.no_scripts = site.without_scripts();
        // No request gets to a name with one, and no configuration has it.
        closed.no_scripts.retain(|path| !path.contains('\\'));
        closed
    }

    /// Whether nothing of the site is answered.
    pub fn is_whole(&self) -> bool {
        self.routes.last().is_some_and(|(path, _)| path == "/*")
    }

    /// Whether no file of the site is sent.
    pub fn sends_nothing(&self) -> bool {
        self.front == ["/*"]
    }

    /// Whether files below a path may be among what is closed, other than by their endings.
    pub fn meets(&self, prefix: &str) -> bool {
        self.ats.iter().any(|at| at.meets(prefix))
    }

    /// Endings of files that are closed wherever they lie.
    pub fn endings(&self) -> Vec<String> {
        let mut all: Vec<String> = self.ats.iter().flat_map(At::endings).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Whether they close anything.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
            && self.front.is_empty()
            && self.no_scripts.is_empty()
            && self.told.is_empty()
    }
}

fn files(root: &Path, told: &mut Vec<String>) -> Vec<(String, Option<String>)> {
    let mut listed = trial::listed(|| list(root), |it| it.root == root);
    told.append(&mut listed.told);
    listed.files
}

fn list(root: &Path) -> Listed {
    let mut told = Vec::new();
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
            let name = match entry.file_name().into_string() {
                Ok(name) => name,
                Err(name) => {
                    if is_directory && told.is_empty() {
                        told.push(format!(
                            "`{directory}/{}`, whose name is no UTF-8, was not looked at",
                            name.display()
                        ));
                    }
                    continue;
                }
            };
            // Other hidden ones are never sent.
            let is_sent = !name.starts_with('.') || name == ".well-known";
            let is_one = is_directory && is_sent;
            if is_one && depth < DEEPEST {
                let below = (format!("{directory}/{name}"), depth + 1);
                // There may be thousands in it, which come last.
                let at = if name == "node_modules" {
                    0
                } else {
                    directories.len()
                };
                directories.insert(at, below);
            } else if is_one && told.is_empty() {
                told.push(format!(
                    "`{directory}/{name}`, more than {DEEPEST} directories deep, was not looked at"
                ));
            }
        }
        match read_linked(&here.join(NAME), LONGEST) {
            Ok(bytes) if bytes.is_empty() => {}
            // Bytes that are no text stand in comments.
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                files.push((directory, Some(text)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => files.push((directory, None)),
        }
    }
    Listed {
        root: root.to_owned(),
        files,
        told,
    }
}

/// The file of a directory, for a person.
fn shown(directory: &str) -> String {
    format!("{}/{NAME}", directory.trim_start_matches('/'))
        .trim_start_matches('/')
        .to_owned()
}

/// Reads one file of a directory below a root, which is at the path `prefix`. Its name, if it
/// closes something.
fn read(
    (directory, text): (&str, Option<&str>),
    prefix: &str,
    site: &mut Site,
    (told, left_out): (&mut Vec<String>, &mut Vec<String>),
    closes_for_all: bool,
) -> Option<String> {
    let file = shown(directory);
    let mut draft = Draft::of(&file);
    draft.closes_for_all = closes_for_all;
    let below = format!("{prefix}{directory}");
    let mut own = Site {
        root: site.root.clone(),
        below: site.below.clone(),
        ..Site::default()
    };
    let read = match text {
        Some(text) => apache::read_directory(&below, text, &mut own, &mut draft),
        None => Err("it can't be read".to_owned()),
    };
    if let Err(why) = read {
        // Whatever it says may be a limit, and Apache answers nothing there.
        own.close("");
        draft.limits.push(format!("`{file}`: {why}: {ALL_CLOSED}"));
    }
    // There is no list of files that are sent where nothing runs.
    if below.is_empty() && own.whole == scripts("none") {
        own.whole = Tree::default();
        own.close("");
        draft
            .limits
            .push(format!("`{file}`: no script runs there: {ALL_CLOSED}"));
    }
    // A rule that closes all of a site closes the directory.
    if own.is_closed() && !below.is_empty() {
        own.closed = None;
        own.close(&below);
        let outcome = format!("`{below}` and what is below it are answered 404");
        for told in &mut draft.limits {
            *told = told.replace(ALL_CLOSED, &outcome);
        }
    }
    told.append(&mut draft.limits);
    left_out.append(&mut draft.left_out);
    left_out.append(&mut draft.notes);
    let folders = own.without_scripts();
    let is_front = own.whole == front_alone();
    let closes = own.is_closed() || is_front || !own.rules.is_empty() || !folders.is_empty();
    site.rewrites.append(&mut own.rewrites);
    for folder in &folders {
        no_scripts(&mut site.pool, folder);
    }
    let leads = own.whole == front_alone() || own.rules.iter().any(Rule::sends_none);
    site.rules.append(&mut own.rules);
    // It holds after all that the configuration says.
    for named in &mut own.named {
        named.place.file = usize::MAX;
    }
    site.named.append(&mut own.named);
    site.closed = site.closed.take().or(own.closed);
    if closes_for_all && below.is_empty() {
        told.extend(site.close_with_front());
    }
    let front = own
        .leads_to
        .or_else(|| leads.then(|| "index.php".to_owned()));
    if let Some(front) = front
        && site.pool.get("fallback") == Some(&Value::from("none"))
    {
        // The configuration alone said of no front controller.
        site.pool.set("fallback", front);
    }
    if below.is_empty() && !own.whole.is_empty() {
        site.whole = own.whole;
    }
    closes.then_some(file)
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
            "{place}: `AllowOverride` for `{root}`, which does not exist on this machine: paths \
             that its `.htaccess` files close are open; run `init` on the machine that has it"
        ));
    }
    let mut told = Vec::new();
    let mut closing = Vec::new();
    for above in Path::new(root).ancestors().skip(1) {
        let here = above.to_string_lossy();
        if !directories.iter().any(|(_, it)| is_in(&here, it)) {
            break;
        }
        let text = match read_linked(&above.join(NAME), LONGEST) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                site.close("");
                told.push(format!("`{here}/{NAME}`: {error}: {ALL_CLOSED}"));
                continue;
            }
        };
        // Its rules are about paths of its own directory.
        let is_rule = |line: &&str| line.trim().to_ascii_lowercase().starts_with("rewrite");
        let (rules, others): (Vec<_>, Vec<_>) = text.lines().partition(is_rule);
        let rules = units::statements(&rules.join("\n"), 0, NAME).unwrap_or_default();
        if apache::takes_files(&rules) {
            site.close("");
            told.push(format!(
                "`{here}/{NAME}`: {ALL_CLOSED}, as its rules refuse some paths or lead them elsewhere"
            ));
        }
        let mut said = Vec::new();
        let others = others.join("\n");
        let sinks = (&mut said, &mut draft.left_out);
        closing.extend(read(("", Some(&others)), prefix, site, sinks, false));
        told.extend(said.into_iter().map(|it| format!("in `{here}`: {it}")));
    }
    for (directory, text) in files(Path::new(root), &mut told) {
        let here = format!("{root}{directory}");
        if directories.iter().any(|(_, it)| is_in(&here, it)) {
            let file = (directory.as_str(), text.as_deref());
            let told = (&mut told, &mut draft.left_out);
            closing.extend(read(file, prefix, site, told, false));
        }
    }
    for mut it in std::mem::take(&mut site.rewrites) {
        if draft.has_many && site.names.is_empty() {
            told.push(lead_to_front(it, site));
        } else {
            draft.for_hosts(&mut it.rule, site);
            draft.rewrite_unless_refused(it.rule);
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

/// Gives the paths of a rule to the front controller, as a rule can't be for a site without a name.
fn lead_to_front(it: Rewriting, site: &mut Site) -> String {
    if !site.rule(it.at, Rank::Expression, front_alone()) {
        site.send_nothing();
    }
    format!("{}: the front controller answers for these paths", it.shown)
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
                apache::read_directory(&directory, text, site, draft)
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
                "files/.htaccess",
                "Options -Indexes -ExecCGI -Includes -MultiViews\n\
                 SetHandler Drupal_Security_Do_Not_Remove_See_SA_2006_006\n<Files *>\n\
                 SetHandler Drupal_Security_Do_Not_Remove_See_SA_2013_003\n</Files>\n\
                 <IfModule mod_php.c>\nphp_flag engine off\n</IfModule>\n",
            ),
            (
                "away/.htaccess",
                "RewriteEngine on\nRewriteRule ^ /index.php [L]\n",
            ),
            ("open/.htaccess", "Options -Indexes\nRequire all granted\n"),
            (".git/.htaccess", "Require all denied\n"),
            (".well-known/own/.htaccess", "Require all denied\n"),
        ]);
        let closed = Closed::below(&root);
        let patterns: Vec<_> = closed
            .routes
            .iter()
            .map(|(path, _)| path.as_str())
            .collect();
        for expected in [
            "/data/*",
            "/.well-known/own/*",
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
        assert_eq!(patterns.len(), 12, "{patterns:#?}");
        let mut no_scripts = closed.no_scripts.clone();
        no_scripts.sort();
        assert_eq!(no_scripts, ["files", "up"]);
        assert_eq!(closed.files.len(), 12, "{:?}", closed.files);
        assert_eq!(closed.told.len(), 2, "{:?}", closed.told);
        assert!(
            closed.told.iter().any(|it| it.contains("only/.htaccess")),
            "{:?}",
            closed.told
        );
    }

    #[test]
    fn a_root_that_leads_all_to_a_script_sends_no_file() {
        let whole: &[&str] = &["/*"];
        let lead = |conditions: &str, rule: &str| {
            format!("RewriteEngine On\n{conditions}RewriteRule {rule}\n")
        };
        let none = "RewriteCond %{REQUEST_FILENAME} !-f\n";
        let passes = "RewriteCond %{REQUEST_FILENAME} -f\nRewriteRule ^ - [L]\n";
        let of_some = "RewriteCond %{REQUEST_URI} !\\.css$\n";
        for (text, front, refused, told) in [
            (lead("", "^(.*)$ index.php [L]"), whole, &[][..], 0),
            (lead("", "^ /index.php?q=$1 [QSA,L]"), whole, &[], 0),
            (lead(of_some, ". index.php"), whole, &[], 1),
            (lead(none, ". index.php [L]"), &[], &[], 0),
            (lead(passes, "^ %{ENV:BASE}/index.php [L]"), &[], &[], 0),
            (
                lead("", "^content/(.*) index.php [L]"),
                &["~ ^/content/(.*)"],
                &[],
                0,
            ),
            (
                lead("", "^api/(.*) /other.php?to=$1 [L]"),
                &["~ ^/api/(.*)"],
                &[],
                1,
            ),
            (lead("", "^(.*)$ htdocs/$1 [L]"), &[], whole, 1),
            (lead("", "^old/(.*)$ /new/$1 [R=301,L]"), &[], &[], 0),
            (
                lead("", "^(.*)$ https://new.example/$1 [R=301,L]"),
                &[],
                whole,
                1,
            ),
        ] {
            let (closed, _) = of_root(&text);
            let routes: Vec<_> = closed.routes.iter().map(|(path, _)| &**path).collect();
            assert_eq!(closed.front, front, "{text}");
            assert_eq!(routes, refused, "{text}");
            assert_eq!(closed.told.len(), told, "{text} {:?}", closed.told);
            assert_eq!(
                closed.meets("/x"),
                front == whole || refused == whole,
                "{text}"
            );
        }
    }

    /// Routes by a root's file, and whether it is said that the whole site is closed.
    fn of_root(text: &str) -> (Closed, bool) {
        let closed = Closed::below(&Directory::with(&[(".htaccess", text)]));
        let says = closed.told.iter().any(|it| it.contains(ALL_CLOSED));
        (closed, says)
    }

    #[test]
    fn a_root_that_is_not_for_all_is_closed_and_said_to_be() {
        for text in [
            "AuthType Basic\nAuthName x\nAuthUserFile /etc/users\nRequire valid-user\n",
            "deny from all\n",
            "Order deny,allow\nDeny from all\nAllow from 10.0.0.1\n",
            "Require ip 10.0.0.0/8\n",
            "Require all denied\n",
            "<RequireAll>\nRequire all granted\nRequire not ip 10.0.0.1\n</RequireAll>\n",
            "<If \"%{HTTP_HOST} == 'stage.example'\">\nRequire valid-user\n</If>\n",
            "SSLVerifyClient require\n",
            "<Limit GET POST>\nRequire valid-user\n</Limit>\n",
            "<FilesMatch \"^(?!index\\.php)\">\nRequire all denied\n</FilesMatch>\n",
            "<Files x>\n",
        ] {
            let (closed, says) = of_root(text);
            let last = closed
                .routes
                .last()
                .map(|(path, status)| (&**path, &**status));
            assert_eq!(last, Some(("/*", "404")), "{text}");
            assert!(says && closed.is_whole(), "{text} {:?}", closed.told);
            assert!(closed.meets("/storage"), "{text}");
            assert_eq!(closed.files, [".htaccess"], "{text}");
        }
    }

    #[test]
    fn a_root_that_is_for_all_stays_open() {
        for text in [
            "Require all granted\n",
            "Order allow,deny\nAllow from all\n",
            "<RequireAll>\nRequire all granted\n</RequireAll>\n",
            "<If \"true\">\nHeader set X-A b\n</If>\n",
            "Options -Indexes\nDirectoryIndex index.php\n",
            "",
        ] {
            let (closed, says) = of_root(text);
            assert!(!says && closed.is_empty(), "{text} {closed:?}");
        }
    }

    #[test]
    fn what_closes_all_of_a_directory_leaves_the_others_open() {
        let ahead = "<FilesMatch \"^(?!index\\.php)\">\nRequire all denied\n</FilesMatch>\n";
        let root = Directory::with(&[("a/.htaccess", ahead), ("b/.htaccess", "<Files x>\n")]);
        std::fs::create_dir(root.join("c")).unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("c/.htaccess"), b"# caf\xe9\ndeny from all\n").unwrap();
        std::fs::write(root.join("d/.htaccess"), vec![b'#'; 300 << 10]).unwrap();
        let closed = Closed::below(&root);
        let mut paths: Vec<_> = closed.routes.iter().map(|(path, _)| &**path).collect();
        paths.sort_unstable();
        let in_a = "~ ^/a(?:/.*)?(?:/)[^/]*$";
        assert_eq!(paths, ["/b/*", "/c/*", "/d/*", in_a]);
        assert!(!closed.is_whole(), "{closed:?}");
        assert_eq!(closed.told.len(), 3, "{:?}", closed.told);
        for told in &closed.told {
            assert!(
                told.contains("are answered 40") && !told.contains(ALL_CLOSED),
                "{told}"
            );
        }
    }

    /// The configuration of a host whose root has this file.
    fn of_host(text: &str) -> crate::Converted {
        let directory = Directory::with(&[("root/index.php", ""), ("root/.htaccess", text)]);
        let host = crate::tests::host_at(&directory.join("root"));
        directory.write("site.conf", &host);
        crate::convert(&[directory.join("site.conf")]).unwrap()
    }

    const FRONT: &str = "RewriteCond %{REQUEST_FILENAME} !-f\n\
                         RewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ index.php [L]\n";

    #[test]
    fn rules_of_a_root_that_lead_to_other_files_are_made_or_told() {
        let rules = format!(
            "RewriteEngine on\nRewriteRule . - [E=REWRITEBASE:/]\n\
             RewriteRule ^api/(.*)$ %{{ENV:REWRITEBASE}}webservice/dispatcher.php?url=$1 [QSA,L]\n\
             RewriteRule ^([0-9])(-[_a-z]*)?/.+\\.jpg$ img/p/$1/$1$2.jpg [L]\n{FRONT}"
        );
        let led = [
            "/webservice/dispatcher.php?url={1}",
            "/img/p/{1}/{1}{2}.jpg",
        ];
        let made = of_host(&rules);
        for to in led {
            assert!(made.yaml.contains(to), "{to}\n{}", made.yaml);
        }
        let is_clean = !made.yaml.contains("front") && !made.is_unsure();
        assert!(is_clean, "{}\n{:?}", made.yaml, made.limits);
        // `serve` has no rules, and says so.
        let (closed, _) = of_root(&rules);
        assert_eq!(
            (closed.told.len(), closed.front.len()),
            (2, 2),
            "{closed:?}"
        );
        for (from, to) in [
            ("RewriteEngine on", "RewriteEngine on\nRewriteBase /shop"),
            ("E=REWRITEBASE:/]", "E=REWRITEBASE:/shop/]"),
            ("[QSA,L]", "[QSA]"),
            (
                "RewriteRule ^api",
                "RewriteCond %{HTTP:A} b\nRewriteRule ^api",
            ),
            (
                "RewriteRule ^api",
                "RewriteRule ^a index.php [L]\nRewriteRule ^api",
            ),
            (
                "RewriteRule ^api",
                "RewriteRule ^ index.php [L]\nRewriteRule ^api",
            ),
            (
                "RewriteRule ^api",
                "RewriteRule ^b - [S=1]\nRewriteRule ^api",
            ),
        ] {
            let made = of_host(&rules.replacen(from, to, 1));
            assert!(!made.yaml.contains("dispatcher"), "{to}\n{}", made.yaml);
            // A rule for some requests alone is a note.
            let is_noted = made.left_out.iter().any(|it| it.contains("^api"));
            let is_told = made.is_unsure() || is_noted || made.yaml.contains("front");
            assert!(is_told, "{to}\n{}", made.yaml);
        }
    }

    #[test]
    fn rules_for_paths_without_a_file_are_told_where_they_lead_to_another_script() {
        let made = of_host(
            "RewriteEngine On\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\n\
             RewriteCond %{REQUEST_FILENAME} -f [OR]\nRewriteCond %{REQUEST_FILENAME} -d\n\
             RewriteRule ^ - [L]\n\
             RewriteRule ^([_0-9a-zA-Z-]+/)?(.*\\.php)$ $2 [L]\nRewriteRule . index.php [L]\n",
        );
        let is_told = made.limits.iter().any(|it| it.contains("(.*\\.php)$ $2"));
        assert!(is_told && made.limits.len() == 1, "{:?}", made.limits);
        assert!(!made.yaml.contains("to:"), "{}", made.yaml);
        let script = FRONT.replace("^ index.php", "^(.*)$ /app.php?q=$1");
        assert!(of_host(&format!("RewriteEngine On\n{script}")).is_unsure());
        assert!(!of_host(&format!("RewriteEngine On\n{FRONT}")).is_unsure());
    }

    #[test]
    fn statements_of_such_files_that_close_nothing_are_told() {
        let made = of_host(
            "Options -Indexes\nDirectoryIndex index.php\nExpiresActive On\nphp_value a b\n\
             ErrorDocument 404 /a.html\n<FilesMatch \"\\.css$\">\nHeader set X-A b\n\
             </FilesMatch>\nRequire all granted\n",
        );
        let told = made.left_out.join("\n");
        for name in ["php_value a b", "ErrorDocument 404", "Header set X-A"] {
            assert!(told.contains(name), "{name}: {told}");
        }
        assert_eq!(made.left_out.len(), 3, "{told}");
        assert!(!made.is_unsure(), "{:?}", made.limits);
    }
}
