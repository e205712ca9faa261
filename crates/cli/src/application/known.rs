//! Applications that are known by what lies in their document root, however that was named: where
//! they put what visitors upload, and what of them is nobody's to read.

use std::path::Path;

use super::{Linked, PUBLIC, Rules};

/// An application, and the folders below its root into which it writes files of visitors.
struct Known {
    name: &'static str,
    /// All of them are there. They lie below the root, or beside it.
    signs: &'static [&'static str],
    /// Those with `*` for one segment are the ones that are there.
    uploads: &'static [&'static str],
}

const KNOWN: [Known; 8] = [
    Known {
        name: "WordPress",
        signs: &["wp-load.php"],
        uploads: &["wp-content/uploads"],
    },
    Known {
        name: "WordPress",
        signs: &["wp-config.php"],
        uploads: &["wp-content/uploads"],
    },
    // In a folder of its own below the root, as Bedrock has it and others.
    Known {
        name: "WordPress",
        signs: &["wp/wp-load.php"],
        uploads: &["app/uploads", "wp-content/uploads", "wp/wp-content/uploads"],
    },
    // The link of `artisan storage:link`.
    Known {
        name: "Laravel",
        signs: &["../artisan"],
        uploads: &["storage"],
    },
    Known {
        name: "Drupal",
        signs: &["core/lib/Drupal.php"],
        uploads: &["sites/default/files", "sites/*/files"],
    },
    Known {
        name: "Joomla",
        signs: &["administrator/index.php", "configuration.php"],
        uploads: &["images", "media", "tmp", "cache"],
    },
    Known {
        name: "MediaWiki",
        signs: &["includes/WebStart.php", "api.php"],
        uploads: &["images", "cache"],
    },
    Known {
        name: "phpBB",
        signs: &["viewtopic.php", "phpbb"],
        uploads: &["files", "store", "cache", "images/avatars/upload"],
    },
];

/// A library has scripts of its own, for its tests for instance, and no visitor is to run one.
const LIBRARIES: &str = "vendor";

/// What lies in a project and is no part of its site. Where the project's folder is the document
/// root, nothing else keeps it from visitors.
const OF_PROJECTS: [&str; 59] = [
    "composer.json",
    "auth.json",
    "installed.json",
    "package.json",
    "package-lock.json",
    "phpunit.xml",
    "phpunit.xml.dist",
    "wp-config.txt",
    "storage/framework/",
    "storage/logs/",
    // Where cPanel's PHP writes.
    "error_log",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    // Copies of these names are compressed.
    "backup",
    "database",
    "dump",
    "htdocs",
    "public_html",
    "www",
    ".lock",
    ".log",
    ".sql",
    ".sqlite",
    ".sqlite3",
    ".db",
    ".pem",
    ".key",
    ".ppk",
    ".p12",
    ".pfx",
    ".jks",
    ".kdbx",
    ".ini",
    ".sh",
    ".tar",
    ".tgz",
    ".diff",
    ".patch",
    ".rej",
    ".backup",
    ".tmp",
    // Rotated logs have a number.
    ".0",
    ".1",
    ".2",
    ".3",
    // SQLite keeps these beside its files.
    "*-wal",
    "*-shm",
    "*-journal",
    // Copies that editors leave.
    "*~",
    "*#",
    ".bak",
    ".old",
    ".orig",
    ".save",
    ".swp",
    ".swo",
    ".dist",
];

/// What the application at a document root is called, if it is known.
pub(super) fn name(root: &Path) -> Option<&'static str> {
    known(root).next().map(|known| known.name)
}

/// The rules of a document root.
pub(super) fn rules(root: &Path) -> Rules {
    let mut rules = Rules::default();
    for uploads in known(root).flat_map(|known| known.uploads) {
        rules.no_scripts.extend(folders(root, uploads));
    }
    if is_project(root) {
        rules.no_scripts.push(LIBRARIES.to_owned());
        rules.forbid = &OF_PROJECTS;
    }
    rules.no_scripts.sort();
    rules.no_scripts.dedup();
    rules
}

/// What `artisan storage:link` has made: a link to the files that a Laravel application keeps for
/// everybody. Other links out of the document root are not followed.
pub(super) fn linked(root: &Path) -> Option<Linked> {
    let project = root.parent().filter(|it| it.join("artisan").exists())?;
    let folder = project.join("storage/app/public");
    let link = root.join("storage");
    let is_link = link.symlink_metadata().ok()?.is_symlink();
    let leads_there = is_link && link.canonicalize().ok()? == folder.canonicalize().ok()?;
    (leads_there && folder.is_dir()).then_some(Linked {
        prefix: "/storage",
        folder,
    })
}

fn known(root: &Path) -> impl Iterator<Item = &'static Known> {
    let is_there = |known: &&Known| known.signs.iter().all(|sign| root.join(sign).exists());
    KNOWN.iter().filter(is_there)
}

/// The folders that a path with `*` in it stands for: many sites may share one Drupal.
fn folders(root: &Path, path: &str) -> Vec<String> {
    const MOST: usize = 32;
    let Some((above, below)) = path.split_once("/*/") else {
        return vec![path.to_owned()];
    };
    let entries = std::fs::read_dir(root.join(above)).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> = names
        .filter(|name| !name.starts_with('.') && !name.contains(','))
        .map(|name| format!("{above}/{name}/{below}"))
        .filter(|folder| root.join(folder).is_dir())
        .collect();
    found.sort();
    found.truncate(MOST);
    found
}

/// Whether a document root holds more than what is made for visitors.
fn is_project(root: &Path) -> bool {
    let is_public = |name: &str| PUBLIC.contains(&name);
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let has_all = known(root).any(|known| !known.signs.iter().all(|sign| sign.starts_with("..")));
    let has = |name: &str| root.join(name).exists();
    !is_public(&name) || has_all || has("composer.json") || has("vendor")
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn uploads_are_known_however_the_root_was_named() {
        for (files, root, name, uploads) in [
            (
                &["wp-load.php"][..],
                "",
                "WordPress",
                &["vendor", "wp-content/uploads"][..],
            ),
            (
                &["web/wp/wp-load.php"],
                "web",
                "WordPress",
                &[
                    "app/uploads",
                    "vendor",
                    "wp-content/uploads",
                    "wp/wp-content/uploads",
                ],
            ),
            (
                &["public/wp-config.php"],
                "public",
                "WordPress",
                &["vendor", "wp-content/uploads"],
            ),
            (
                &["artisan", "public/index.php"],
                "public",
                "Laravel",
                &["storage"],
            ),
            (
                &[
                    "web/core/lib/Drupal.php",
                    "web/sites/a.org/files/x",
                    "web/sites/b/settings.php",
                ],
                "web",
                "Drupal",
                &["sites/a.org/files", "sites/default/files", "vendor"],
            ),
            (
                &["viewtopic.php", "phpbb/x"],
                "",
                "phpBB",
                &["cache", "files", "images/avatars/upload", "store", "vendor"],
            ),
        ] {
            let files: Vec<_> = files.iter().map(|file| (*file, "")).collect();
            let directory = Directory::with(&files);
            let root = directory.join(root);
            assert_eq!(super::name(&root), Some(name));
            assert_eq!(rules(&root).no_scripts, uploads, "{name}");
        }
        let directory = Directory::with(&[("index.php", ""), ("public/index.php", "")]);
        assert_eq!(name(&directory), None);
        assert_eq!(rules(&directory).no_scripts, ["vendor"]);
        assert_eq!(rules(&directory.join("public")), Rules::default());
    }

    #[test]
    fn a_project_that_is_its_own_root_keeps_its_files() {
        let directory = Directory::with(&[("index.php", ""), ("web/composer.json", "")]);
        for root in [directory.to_path_buf(), directory.join("web")] {
            let forbid = rules(&root).forbid;
            assert!(forbid.contains(&".sql") && forbid.contains(&"composer.json"));
        }
    }
}
