//! Frameworks that are not in Debian, with the workers of `examples`. `make compat-frameworks
//! DIR=…` runs it: DIR has a folder `mezzio`, `yii`, `codeigniter` or more of them, each an
//! application as its skeleton makes it. Of what is there only the application writes something,
//! as logs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pronghorn_testkit::{Server, Site, wait_for};

/// The application of that name. None: it is not in DIR.
fn application(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PRONGHORN_COMPAT_DIR").expect("`make` sets it");
    let folder = Path::new(&folder).join(name);
    let is_there = folder.join("vendor/autoload.php").is_file();
    if !is_there {
        println!("left out: {} is no application", folder.display());
    }
    is_there.then_some(folder)
}

/// Pages of an application that is kept.
fn pages(name: &str, paths: &[&str]) {
    let Some(application) = application(name) else {
        return;
    };
    let server = start(name, &application);
    for _ in 0..3 {
        for path in paths {
            let page = server.get(path);
            assert_eq!(page.status, 200, "{path}: {}", page.text());
        }
        assert_eq!(server.get("/none").status, 404);
    }
    let ended = server.stop();
    assert!(!ended.stderr.contains("\tERROR\t"), "{}", ended.stderr);
}

/// The example's worker and configuration beside what is the application's, with the package of
/// this repository.
fn start(name: &str, application: &Path) -> Server {
    let site = Site::new();
    for entry in std::fs::read_dir(application).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let file = path.file_name().and_then(|name| name.to_str());
        let file = file.expect("it is UTF-8");
        if !["worker.php", "pronghorn.yaml"].contains(&file) {
            symlink(&path, site.path(file)).expect("a link can be made");
        }
    }
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php");
    let example = |file: &str| {
        let path = Site::example(name).with_file_name(file);
        std::fs::read_to_string(path).expect("an example has both")
    };
    let worker = example("worker.php");
    let load = format!("<?php\nrequire '{packages}/worker/autoload.php';\n");
    site.write("worker.php", &worker.replacen("<?php\n", &load, 1));
    let config = example("pronghorn.yaml").replace("127.0.0.1:8080", "127.0.0.1:0");
    Server::start(site.config(&config))
}

#[test]
fn mezzio() {
    pages("mezzio", &["/", "/api/ping"]);
}

#[test]
fn yii() {
    pages("yii", &["/", "/?a=1"]);
}

#[test]
fn codeigniter() {
    let Some(application) = application("codeigniter") else {
        return;
    };
    let server = start("codeigniter", &application);
    let home = server.get("/");
    assert!(home.status == 200 && home.text().contains("Welcome to CodeIgniter"));
    assert_eq!(server.get("/none").status, 404);
    for _ in 0..5 {
        assert_eq!(server.get("/?a=1").status, 200);
    }
    // The process between it and a worker looks like it for a moment.
    wait_for("one zygote", || (server.zygotes().len() == 1).then_some(()));
    let ended = server.stop();
    for trouble in ["\tERROR\t", "in spite of"] {
        assert!(!ended.stderr.contains(trouble), "{}", ended.stderr);
    }
}
