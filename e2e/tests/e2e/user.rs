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
    switch (preg_replace('~^/(daemon|tape)(?=/)~', '', $request->path)) {
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
        case '/sendfile':
            return new Pronghorn\Response('', 200, ['X-Sendfile' => __DIR__ . '/' . $request->query()['name']]);
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

/// Three pools: as `server.user` says, of a user of its own, and of a group of its own.
fn site_of_three(listen: &str) -> Site {
    let site = site();
    site.write(
        "worker.php",
        &WORKER.replace(
            "return 'Hello'",
            "return Pronghorn\\Rpc::connect()->call('rpc.Version', true)",
        ),
    );
    site.file("daemons", "for daemon").config(&format!(
        "version: '3'\nserver: {{command: php worker.php, user: nobody}}\n\
         rpc: {{listen: '{listen}'}}\n\
         http:\n  address: 127.0.0.1:0\n  uploads: {{dir: uploads}}\n  middleware: [sendfile]\n  \
         pool: {{num_workers: 1}}\n  pools:\n    \
         daemon: {{num_workers: 1, user: daemon}}\n    \
         tape: {{num_workers: 1, group: tape}}\n  routes:\n    \
         - {{path: /daemon/*, pool: daemon}}\n    \
         - {{path: /tape/*, pool: tape}}\n"
    ))
}

#[test]
fn each_pool_has_a_user_and_a_group() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for listen in ["unix://rpc.sock", "tcp://127.0.0.1:0"] {
        let site = site_of_three(listen);
        let daemons = site.path("daemons");
        chown(&daemons, Some(1), Some(1)).unwrap();
        set_permissions(&daemons, Permissions::from_mode(0o400)).unwrap();
        let mut server = Server::start(site);
        for _ in ["started", "upgraded"] {
            let who = |path: &str| server.get(path).text();
            assert!(who("/who").starts_with("65534 65534"), "{}", who("/who"));
            assert!(
                who("/daemon/who").starts_with("1 1"),
                "{}",
                who("/daemon/who")
            );
            assert!(
                who("/tape/who").starts_with("65534 26"),
                "{}",
                who("/tape/who")
            );
            for path in ["/", "/daemon/", "/tape/"] {
                assert_eq!(who(path), "2025.1.15", "{path} over {listen}");
            }
            // What is made for a worker is its user's.
            let upload = |path: &str| {
                let body = "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--X--\r\n";
                let type_ = "multipart/form-data; boundary=X";
                server.post(path, type_, body).text()
            };
            assert!(upload("/upload").starts_with("65534 600 "));
            assert!(upload("/daemon/upload").starts_with("1 600 "));
            let large = |path: &str| {
                let body = vec![b'a'; 1_000_000];
                server.post(path, "application/octet-stream", body).text()
            };
            let expected = "1000000 7707d6ae4e027c70eea2a935c2296f21";
            assert_eq!(
                [large("/body"), large("/daemon/body")],
                [expected, expected]
            );
            // And what it may not read is not sent for it.
            assert_eq!(server.get("/daemon/file?name=daemons").text(), "for daemon");
            assert_eq!(server.get("/file?name=daemons").status, 500);
            assert_eq!(
                server.get("/daemon/sendfile?name=daemons").text(),
                "for daemon"
            );
            assert_eq!(server.get("/sendfile?name=daemons").status, 404);
            server.upgrade();
        }
        server.stop();
    }
}

#[test]
fn a_stranger_may_not_call_what_several_users_may() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = Server::start(site_of_three("unix://rpc.sock"));
    let call = "require 'sdk/goridge/autoload.php'; \
                echo Pronghorn\\Rpc::connect('unix://rpc.sock')->call('rpc.Version', true);";
    let call_as = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "php", "-r", call]);
        let said = command
            .current_dir(server.site().folder())
            .output()
            .unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    assert_eq!(call_as("daemon"), "2025.1.15");
    assert!(!call_as("games").contains("2025.1.15"));
    server.logged(&["refused: the user is none of the workers'"]);
    server.stop();
}

#[test]
fn classic_and_forked_workers_of_a_pool_have_its_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for pool in [
        "mode: classic, spawn: fork, root: public",
        "mode: classic, spawn: exec, root: public",
        "mode: fastcgi, root: public",
        "spawn: fork, command: php worker.php",
    ] {
        let site = site().file("public/index.php", "<?php echo posix_geteuid();");
        site.write(
            "worker.php",
            &WORKER.replace("return 'Hello'", "return (string) posix_geteuid()"),
        );
        let server = Server::start(site.config(&format!(
            "version: '3'\nserver: {{user: nobody}}\nhttp: {{address: '127.0.0.1:0', \
             pool: {{{pool}, num_workers: 1, user: daemon}}}}\n"
        )));
        assert_eq!(server.get("/").text(), "1", "{pool}");
        server.stop();
    }
}

#[test]
fn who_is_nobody_here_is_told_with_its_key() {
    for (pool, parts) in [
        (
            "user: no-such-user",
            ["`http.pool.user`", "no user is called"],
        ),
        (
            "user: nobody, group: no-such-group",
            ["`http.pool.group`", "no group is called"],
        ),
        ("group: nogroup", ["`http.pool.group`", "no `user`"]),
    ] {
        let site = Site::new().file("worker.php", "<?php").config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
                 http: {{address: '127.0.0.1:0', pool: {{{pool}}}}}\n"
        ));
        for command in ["check", "serve"] {
            let ended = Server::run(&site, &[command]);
            let said = [ended.stdout, ended.stderr].concat();
            assert_ne!(ended.code, Some(0), "{said}");
            for part in parts {
                assert!(said.contains(part), "{part} in {said}");
            }
        }
    }
    if rustix::process::geteuid().is_root() {
        let site = Site::new().file("worker.php", "<?php").config(
            "version: '3'\nserver: {command: php worker.php}\n\
             http: {address: '127.0.0.1:0', pool: {user: nobody}}\n",
        );
        set_permissions(site.folder(), Permissions::from_mode(0o777)).unwrap();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "daemon", "--clear-groups"])
            .arg(pronghorn_testkit::binary());
        let ended = Server::run_by(command, &site, &["serve"]);
        ended.assert_refused(&["`http.pool.user` is `nobody`", "only root may start"]);
    }
}

/// Nobody finds out why from a page alone.
#[test]
fn a_script_that_workers_may_not_read_is_told_by_check_and_by_the_log() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new()
        .config(
            "version: '3'\nserver: {command: php, user: nobody}\n\
             http: {address: 127.0.0.1:0, pool: {mode: classic, root: ., num_workers: 1}}\n",
        )
        .file("index.php", "<?php echo 'seen';");
    let index = site.path("index.php");
    set_permissions(&index, Permissions::from_mode(0o600)).expect("root may do this");
    let said = [
        "`http.pool.root` has `",
        "index.php`, which nobody can't read",
        "chmod a+r ",
    ];
    let checked = Server::run(&site, &["check"]);
    let text = [checked.stdout, checked.stderr].concat();
    assert_eq!(checked.code, Some(2), "{text}");
    for part in said {
        assert!(text.contains(part), "{part} in {text}");
    }
    let server = Server::start(site);
    assert_eq!(server.get("/").status, 403);
    server.logged(&["Unable to open primary script", "Permission denied"]);
    set_permissions(&index, Permissions::from_mode(0o644)).expect("root may do this");
    assert_eq!(server.get("/").text(), "seen");
    server.stop();
}
