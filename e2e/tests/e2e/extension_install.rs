//! `pronghorn extension`: from a machine without a build to workers that use it, and what stands in
//! the way.
//!
//! A copy of the binary stands for an installed one: beside that of the tests lies what
//! `scripts/build-extension` has built.

use std::path::PathBuf;
use std::process::Command;

use pronghorn_testkit::{Ended, Server, Site, binary};

use crate::first_minute::Disk;
use crate::ring::extension;

const WORKER: &str = "return extension_loaded('pronghorn') ? 'ring' : 'pipes';";

struct Machine {
    site: Site,
    binary: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let config = "version: '3'\nserver: {command: php worker.php}\n\
                      http: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n";
        let site = Site::new()
            .file("worker.php", &Site::sdk_worker(WORKER))
            .file("opt/bin/.keep", "")
            .config(config);
        let copy = site.path("opt/bin/pronghorn");
        std::fs::hard_link(binary(), &copy)
            .or_else(|_| std::fs::copy(binary(), &copy).map(drop))
            .expect("the binary can be copied");
        Self { site, binary: copy }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("PRONGHORN_EXTENSIONS", self.site.path("builds"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Server::run_by(self.command(), &self.site, arguments)
    }

    /// A program called `php` that changes what the real one says of itself, and runs scripts as
    /// that does.
    fn php(&self, name: &str, change: &str) -> String {
        let path = self.site.path(name);
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n*pronghorn-asks*) /usr/bin/php \"$@\" | sed '{change}' ;;\n\
             *) exec /usr/bin/php \"$@\" ;;\nesac\n"
        );
        self.site.write(name, &script);
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("it is ours");
        path.display().to_string()
    }
}

#[test]
fn a_build_is_made_and_found_and_used() {
    let machine = Machine::new();
    machine.run(&["check"]).assert_said(&[
        "`server.command` starts workers, and PHP",
        "`pronghorn extension install` builds it",
    ]);
    machine
        .run(&["extension", "status"])
        .assert_said_with(1, &["missing: `pronghorn extension install` builds it"]);
    let (command, Machine { site, binary }) = (machine.command(), machine);
    let server = Server::start_by(command, site, &["serve"]);
    assert_eq!(server.get("/").text(), "pipes");
    server.logged(&[
        "has no extension `pronghorn`, so workers use pipes",
        "`pronghorn extension install` builds it",
    ]);
    let machine = Machine {
        site: server.into_site(),
        binary,
    };

    Server::build_by(machine.command(), &machine.site, &["extension", "install"])
        .assert_said(&["builds/pronghorn-", "will use it"]);
    let built = machine.run(&["extension", "status", "--json"]);
    assert_eq!(built.code, Some(0), "{}", built.stdout);
    let status: serde_json::Value = serde_json::from_str(&built.stdout).expect("it is JSON");
    assert_eq!(status["phps"][0]["state"], "ready", "{status}");
    assert_eq!(status["phps"][0]["release"], status["version"], "{status}");
    let checked = machine.run(&["check"]);
    assert!(
        !checked.stdout.contains("no extension"),
        "{}",
        checked.stdout
    );

    let (command, Machine { site, binary }) = (machine.command(), machine);
    let server = Server::start_by(command, site, &["serve"]);
    assert_eq!(server.get("/").text(), "ring");
    assert!(!server.log().contains("no extension"), "{}", server.log());
    let machine = Machine {
        site: server.into_site(),
        binary,
    };
    // Nothing but the build is left in its folder.
    let files = std::fs::read_dir(machine.site.path("builds")).expect("it was made");
    assert_eq!(files.count(), 1);
}

/// Two releases beside each other, the one that `php` stands for and another.
#[test]
fn two_phps_are_told_apart() {
    let machine = Machine::new();
    let other = machine.php(
        "bin/php8.5",
        "s/8\\.[0-9.]*/8.5.9/; s/20[0-9]*-nts/20990101-nts/",
    );
    let path = std::env::var("PATH").expect("there is one");
    let path = format!("{}:{path}", machine.site.path("bin").display());
    let command = || {
        let mut command = machine.command();
        command.env("PATH", &path);
        command
    };
    let run = |arguments: &[&str]| Server::run_by(command(), &machine.site, arguments);
    let install = format!("`pronghorn extension install --php {other}` builds it");
    run(&["extension", "status"]).assert_said_with(
        1,
        &[
            "missing: `pronghorn extension install` builds it",
            &format!("{other}  8.5.9  20990101-nts\n    missing: {install}"),
        ],
    );
    // A build for the first one is none for the other.
    let built = extension();
    let name = built.file_name().expect("it is a file").to_string_lossy();
    machine.site.write("builds/.keep", "");
    let copied = std::fs::copy(&built, machine.site.path(&format!("builds/{name}")));
    copied.expect("it can be copied");
    run(&["extension", "status"]).assert_said(&["ready: ", &install]);
    let json = run(&["extension", "status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(status["phps"][0]["state"], "ready", "{status}");
    assert_eq!(status["phps"][1]["php"], other, "{status}");
    assert_eq!(status["phps"][1]["state"], "missing", "{status}");

    let workers = format!("server.command={other} worker.php");
    run(&["check", "-o", &workers]).assert_said(&["PHP 8.5.9 has no extension", &install]);
    let checked = run(&["check"]).stdout;
    assert!(!checked.contains("no extension"), "{checked}");
    let command = command();
    let server = Server::start_by(command, machine.site, &["serve", "-o", &workers]);
    assert_eq!(server.get("/").text(), "pipes");
    server.logged(&["PHP 8.5.9 has no extension `pronghorn`", &install]);
    server.stop();
}

#[test]
fn a_disk_that_takes_no_build_is_told_before_the_work() {
    let machine = Machine::new();
    let Some(disk) = Disk::mounted(machine.site.path("disk")) else {
        return;
    };
    let shown = machine.site.path("disk").display().to_string();
    let install = || {
        let mut command = machine.command();
        command.env("PRONGHORN_EXTENSIONS", machine.site.path("disk/builds"));
        Server::run_by(command, &machine.site, &["extension", "install"])
    };
    let full = install();
    full.assert_refused(&[
        &format!("`{shown}/builds` can't be written to: No space left on device"),
        &format!("hint: `df -h {shown}/builds` shows the disk; or name a folder of your own"),
    ]);
    assert!(!full.stdout.contains("will use it"));
    let left = std::fs::read_dir(machine.site.path("disk/builds")).expect("it was made");
    assert_eq!(left.count(), 0, "no draft is left");
    std::fs::remove_dir(machine.site.path("disk/builds")).expect("it is empty");
    disk.make_read_only();
    install().assert_refused(&[
        &format!("`{shown}/builds` can't be written to: Read-only file system"),
        &format!("hint: `findmnt -T {shown}` shows the mount; or name a folder of your own"),
    ]);
}

#[test]
fn what_stands_in_the_way_is_said_with_what_to_type() {
    let machine = Machine::new();
    let failed = |ended: &Ended, code: i32, parts: &[&str]| {
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
        }
    };
    let install = |php: &str| machine.run(&["extension", "install", "--php", php]);
    failed(
        &install("php9"),
        2,
        &["there is no PHP `php9`", "hint: `--php` takes a path"],
    );
    failed(
        &install("true"),
        1,
        &["does not report its version", "hint: `"],
    );
    let other = machine.php("other/php", "s/20[0-9]*-nts/20990101-nts/");
    failed(
        &install(&other),
        1,
        &["builds for 20", "and this PHP needs 20990101-nts", "hint: "],
    );
    let without = machine.php("without/php", "s#/usr/bin#/nowhere#");
    failed(
        &install(&without),
        1,
        &["there is no `phpize` for", "/nowhere/phpize", "hint: "],
    );
    let old = machine.php("old/php", "s/8\\.[0-9.]*/7.4.33/");
    failed(
        &install(&old),
        1,
        &["PHP 7.4.33, and the extension needs 8.1"],
    );
    // No compiler: a search path with nothing but PHP, and what `php-config` runs.
    machine.site.write("bin/.keep", "");
    for name in ["php", "sed"] {
        let link = machine.site.path(&format!("bin/{name}"));
        std::os::unix::fs::symlink(format!("/usr/bin/{name}"), link).expect("it is new");
    }
    let mut command = machine.command();
    command.env("PATH", machine.site.path("bin"));
    let ended = Server::run_by(command, &machine.site, &["extension", "install"]);
    failed(
        &ended,
        1,
        &["there is no `autoconf`, which a build needs", "hint: "],
    );
    let mut command = machine.command();
    command.env("PATH", "/nowhere");
    let ended = Server::run_by(command, &machine.site, &["extension", "status"]);
    failed(
        &ended,
        1,
        &["there is no PHP in PATH", "hint: `apt install php-cli`"],
    );

    let mut command = machine.command();
    command.env("PRONGHORN_EXTENSIONS", "/proc/builds");
    let ended = Server::run_by(command, &machine.site, &["extension", "install"]);
    failed(
        &ended,
        1,
        &[
            "`/proc/builds` can't be written to: ",
            "hint: run it as root",
        ],
    );
    assert!(!machine.site.path("builds").exists());

    let new = machine.php("new/php", "s/8\\.[0-9.]*/8.9.1/");
    let install = ["extension", "install", "--php", &new];
    let ended = Server::build_by(machine.command(), &machine.site, &install);
    assert!(
        ended.stderr.contains("PHP 8.9.1 is newer than Pronghorn"),
        "{}",
        ended.stderr
    );
    // The build fits all the same, and every command that shows it says what was not tried.
    let path = format!(
        "{}:{}",
        machine.site.path("new").display(),
        std::env::var("PATH").expect("there is one")
    );
    let status = |more: &[&str]| {
        let mut command = machine.command();
        command.env("PATH", &path);
        Server::run_by(
            command,
            &machine.site,
            &[&["extension", "status"], more].concat(),
        )
    };
    status(&[]).assert_said(&["ready: ", "PHP 8.9.1 is newer than Pronghorn"]);
    let json: serde_json::Value =
        serde_json::from_str(&status(&["--json"]).stdout).expect("it is JSON");
    assert_eq!(json["phps"][0]["tried"], false, "{json}");
}
