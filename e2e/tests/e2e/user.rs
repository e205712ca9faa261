//! Workers that run as another user than the server, `server.user`. What the server makes for them must be theirs.

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
        .arg(Site::fixture("../../php/worker"))
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
