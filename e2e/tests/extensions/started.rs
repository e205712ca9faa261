//! Starts a server with each of Debian's extensions of PHP that `scripts/php-extensions` has
//! unpacked.

use std::path::Path;

use pronghorn_testkit::{Server, Site, binary};

/// Says whether it has it, and how it was started.
const ANSWER: &str = "(extension_loaded('NAME') ? 'has ' : 'lacks ') . PHP_SAPI";
/// Seen at a process's end.
const CRASHED: &str = "SIG";

/// Each extension of this folder of `target/tools`, and how many there were.
pub(crate) fn start_each(folder: &str) -> usize {
    let binary = binary();
    let target = binary.parent().and_then(Path::parent);
    let folder = target.expect("it is a build").join("tools").join(folder);
    let missing = format!("{}: `scripts/php-extensions` makes it", folder.display());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(&missing);
    let (list, libraries) = (read("list"), read("libraries"));
    for line in list.lines() {
        let (name, options) = line.split_once(' ').expect("a name and its options");
        start(name, options.trim(), libraries.trim());
    }
    list.lines().count()
}

/// In each way that workers come to be, answers two requests, and ends.
pub(crate) fn start(name: &str, options: &str, libraries: &str) {
    for spawn in ["fork", "exec", "kept"] {
        let server = Server::start(site(name, options, libraries, spawn));
        for _ in 0..2 {
            let said = server.get("/").text();
            let sapi = if spawn == "kept" { "cli" } else { "fpm-fcgi" };
            let expected = format!("has {sapi}");
            assert!(
                said.contains(&expected),
                "{name}, {spawn}: {said}\n{}",
                server.log()
            );
        }
        let ended = server.stop();
        assert!(
            !ended.stderr.contains(CRASHED) && !ended.stderr.contains("ERROR"),
            "{name}, {spawn}: {}",
            ended.stderr
        );
    }
}

fn site(name: &str, options: &str, libraries: &str, spawn: &str) -> Site {
    // One is known to PHP by another name.
    let known = match name {
        "opcache" => "Zend OPcache",
        name => name,
    };
    let answer = ANSWER.replace("NAME", known);
    let head = "version: '3'\nhttp:\n  address: 127.0.0.1:0\n";
    let environment = format!("env: {{LD_LIBRARY_PATH: '{libraries}'}}");
    if spawn == "kept" {
        return Site::new()
            .file("worker.php", &Site::sdk_worker(&format!("return [{answer}];")))
            .config(&format!(
                "{head}  pool: {{num_workers: 1}}\nserver: {{command: 'php {options} worker.php', {environment}}}\n"
            ));
    }
    Site::new()
        .file("public/index.php", &format!("<?php echo {answer};"))
        .config(&format!(
            "{head}  pool: {{mode: classic, root: public, num_workers: 1, spawn: {spawn}, php: 'php {options}'}}\nserver: {{{environment}}}\n"
        ))
}
