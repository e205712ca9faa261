//! Workers that run as another user than the server, `server.user`. What the server makes for them
//! must be theirs.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use pronghorn_testkit::{Server, Site};

/// Debian's and everybody's user without rights.
const NOBODY: u32 = 65_534;

const WORKER: &str = r"<?php
require __DIR__ . '/sdk/autoload.php';
Pronghorn\serve(function (Pronghorn\Request $request): mixed {
    switch ($request->path) {
        case '/who':
            return posix_geteuid() . ' ' . posix_getegid() . ' ' . implode(' ', posix_getgroups());
        case '/upload':
            $file = $request->files()['file'];
            $before = sprintf('%d %o', fileowner($file->path()), fileperms($file->path()) & 0777);
            if ($request->query() === []) {
                return $before . ' ' . $file->path();
            }
            $file->moveTo(__DIR__ . '/theirs/moved');
            return $before . ' ' . file_get_contents(__DIR__ . '/theirs/moved');
        case '/body':
            return strlen($request->body()) . ' ' . md5($request->body());
        case '/file':
            return Pronghorn\Response::file(__DIR__ . '/' . $request->query()['name']);
    }
    return 'Hello';
});
";

/// A site that this user can read, wherever the repository lies.
fn site() -> Site {
    let site = Site::new()
        .config(
            "version: '3'\nserver: {command: php worker.php, user: nobody}\n\
             http:\n  address: 127.0.0.1:0\n  uploads: {dir: uploads}\n  pool: {num_workers: 1}\n\
             logs: {level: debug}\n",
        )
        .file("worker.php", WORKER)
        .file("open", "for everybody")
        .file("secret", "for root")
        .file("uploads/readme", "")
        .file("theirs/readme", "");
    let sdk = Command::new("cp")
        .arg("-R")
        .arg(Site::fixture("../../php"))
        .arg(site.path("sdk"))
        .status();
    assert!(sdk.is_ok_and(|status| status.success()));
    let hidden = set_permissions(site.path("secret"), Permissions::from_mode(0o600));
    let theirs = chown(site.path("theirs"), Some(NOBODY), None);
    hidden.and(theirs).expect("root may do this");
    site
}

#[test]
fn what_the_server_makes_for_workers_is_theirs() {
    if !rustix::process::geteuid().is_root() {
        return; // nobody else can start a process as another user
    }
    let server = Server::start(site());
    let who = server.get("/who").text();
    assert!(who.starts_with("65534 65534"), "{who}");
    assert!(
        !who.split(' ').any(|id| id == "0"),
        "no group of root's: {who}"
    );

    // An upload is the worker's to read and to move, and nobody else's to read.
    let upload = |target: &str| {
        let body = "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\ncontent\r\n--X--\r\n";
        server
            .post(target, "multipart/form-data; boundary=X", body)
            .text()
    };
    let left = upload("/upload");
    let path = left
        .strip_prefix("65534 600 ")
        .unwrap_or_else(|| panic!("{left}"));
    pronghorn_testkit::wait_for("the upload to be removed", || {
        (!Path::new(path).exists()).then_some(())
    });
    assert_eq!(upload("/upload?move=1"), "65534 600 content");
    let moved = std::fs::metadata(server.site().path("theirs/moved")).unwrap();
    assert_eq!(moved.uid(), NOBODY);

    // So is a body that was put into a file.
    let large = server.post("/body", "application/octet-stream", vec![b'a'; 1_000_000]);
    assert_eq!(large.text(), "1000000 7707d6ae4e027c70eea2a935c2296f21");

    // A file is sent if the worker could have read it.
    assert_eq!(server.get("/file?name=open").text(), "for everybody");
    let refused = server.get("/file?name=secret");
    assert_eq!(refused.status, 500);
    assert!(!refused.text().contains("for root"));
    server.stop();
}

/// A server whose one pool says who it is told that it is, in this mode.
fn telling(mode: &str, server: &str) -> Site {
    const TELLS: &str = "getenv('USER') . ' ' . getenv('HOME')";
    let pool = match mode {
        "worker" => "num_workers: 1".to_owned(),
        "exec" | "fork" => {
            format!("mode: classic, spawn: {mode}, root: public, num_workers: 1")
        }
        mode => format!("mode: {mode}, root: public, num_workers: 1"),
    };
    let command = if mode == "worker" {
        "command: php worker.php, "
    } else {
        ""
    };
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(&format!("return {TELLS};")))
        .file("public/index.php", &format!("<?php echo {TELLS};"))
        .file("public/index.cgi", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s' \"$USER\" \"$HOME\"\n")
        .config(&format!(
            "version: '3'\nserver: {{{command}{server}}}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{{pool}}}\n"
        ));
    let program = site.path("public/index.cgi");
    set_permissions(program, Permissions::from_mode(0o755)).expect("it was just written");
    site
}

fn told(server: Server, mode: &str) -> String {
    let told = server
        .get(if mode == "cgi" { "/index.cgi" } else { "/" })
        .text();
    server.stop();
    told
}

#[test]
fn user_and_home_are_those_of_the_account() {
    let account = Command::new("sh")
        .args(["-c", "getent passwd $(id -u)"])
        .output()
        .expect("a system");
    let account = String::from_utf8(account.stdout).expect("a line of text");
    let parts: Vec<&str> = account.split(':').collect();
    let account = format!("{} {}", parts[0], parts[5]);
    let without = Site::new().file("without", "#!/bin/sh\nexec env -u USER -u HOME \"$@\"\n");
    let without_both = without.path("without");
    set_permissions(&without_both, Permissions::from_mode(0o755)).expect("it was just written");
    let other = [("USER", "other"), ("HOME", "/other")];
    for mode in ["fork", "exec", "fastcgi", "cgi", "worker"] {
        let server = Server::start_under(&without_both, telling(mode, ""));
        assert_eq!(told(server, mode), account, "{mode}, without");
        let server = Server::start_with_environment(telling(mode, ""), &["serve"], &other);
        // A worker of one's own keeps what the server was started with.
        let expected = if mode == "worker" {
            "other /other"
        } else {
            &*account
        };
        assert_eq!(told(server, mode), expected, "{mode}, others");
        let written = "env: {USER: written, HOME: /written}";
        let server = Server::start_with_environment(telling(mode, written), &["serve"], &other);
        assert_eq!(told(server, mode), "written /written", "{mode}, written");
    }
}

#[test]
fn user_and_home_are_those_of_the_workers_user() {
    let home = Command::new("sh")
        .args(["-c", "getent passwd nobody | cut -d: -f6"])
        .output()
        .expect("a system");
    let expected = format!("nobody {}", String::from_utf8_lossy(&home.stdout).trim());
    // The other modes need a root that the user can read.
    let site = site();
    site.write(
        "worker.php",
        &WORKER.replace(
            "return 'Hello'",
            "return getenv('USER') . ' ' . getenv('HOME')",
        ),
    );
    assert_eq!(told(Server::start(site), "worker"), expected);
}
