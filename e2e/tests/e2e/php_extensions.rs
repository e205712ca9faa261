//! Extensions of PHP that hook the start or the end of a request, or keep something over requests:
//! workers with them start, serve and end.
//!
//! `scripts/php-extensions` unpacks them. `make extensions` tries all that Debian has.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use pronghorn_testkit::{Server, Site};

use crate::started::{start, start_each};

#[test]
fn extensions_that_hook_requests_start_serve_and_end() {
    let count = start_each("php-extensions");
    assert!(count >= 6, "{count}");
}

#[test]
fn opcache_preloads_before_scripts_are_served() {
    let preload = std::env::temp_dir().join(format!("preload-{}.php", std::process::id()));
    std::fs::write(&preload, "<?php class Preloaded {}").unwrap();
    let user = if rustix::process::geteuid().is_root() {
        " -d opcache.preload_user=root"
    } else {
        ""
    };
    let options = format!(
        "-d opcache.enable_cli=1 -d opcache.preload={}{user}",
        preload.display()
    );
    start("opcache", &options, "");
    std::fs::remove_file(preload).unwrap();
}

/// A worker's end is no request: nothing is left of one that nobody made.
#[test]
fn no_worker_has_a_request_of_its_own() {
    for spawn in ["fork", "exec"] {
        let site = Site::new()
            .file("public/index.php", "<?php echo session_id();")
            .file("sessions/.keep", "");
        let sessions = site.path("sessions").display().to_string();
        let site = site.config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: classic, root: public, num_workers: 2, spawn: {spawn}, \
             ini: {{session.auto_start: 1, session.save_path: '{sessions}', session.use_strict_mode: 0}}}}\n"
        ));
        let server = Server::start(site);
        let said = server.get("/").text();
        let _site = server.into_site(); // its folder goes with it
        let left = std::fs::read_dir(sessions).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<_> = names.filter(|name| name != ".keep").collect();
        assert_eq!(names, [format!("sess_{said}")], "{spawn}");
    }
}

/// A developer's machine has more than tests know of: `scripts/php-configuration` leaves it out.
#[test]
fn tests_run_php_with_its_own_extensions_alone() {
    let site = Site::new()
        .file(
            "conf.d/10-opcache.ini",
            "; opcache\nzend_extension=opcache.so\n",
        )
        .file("conf.d/20-curl.ini", "extension = \"curl\" ; quoted\n")
        .file("conf.d/20-pdo.ini", "extension=/usr/lib/php/pdo_mysql.so\n")
        .file("conf.d/20-xdebug.ini", "zend_extension=xdebug.so\n")
        .file("conf.d/30-both.ini", "extension=curl\nextension=apcu\n")
        .file("conf.d/99-mine.ini", "memory_limit=1G\n")
        .file("php", "#!/bin/sh\necho \"${0%/php}/conf.d\"\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("php"), executable).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/php-configuration");
    let made = Command::new(script)
        .arg(site.path("php"))
        .env("TMPDIR", site.folder())
        .output()
        .unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let kept = std::fs::read_dir(made.trim_end()).unwrap();
    let mut kept: Vec<_> = kept.map(|entry| entry.unwrap().file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["10-opcache.ini", "20-curl.ini", "20-pdo.ini"]);
}
