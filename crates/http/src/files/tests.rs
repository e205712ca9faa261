//! Files in real folders; what a request gets of them.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use pronghorn_serve::{Read, Reader};
use pronghorn_testkit::Directory;

use super::*;
use crate::coding::Coding;
use crate::middleware::testing::request;

/// A directory with another one in it, `public`, which is served.
struct Site(Directory);

impl Site {
    fn new() -> Self {
        let files = [("secret.txt", "secret"), ("public/a.css", "0123456789")];
        Self(Directory::with(&files))
    }

    fn write(&self, name: &str, content: &str) {
        self.0.write(name, content);
    }

    fn settings(&self) -> RootSettings {
        RootSettings::new(self.0.join("public"))
    }

    fn files(&self, change: impl FnOnce(&mut RootSettings)) -> Served {
        let mut settings = self.settings();
        change(&mut settings);
        Served(Arc::new(Files::open(vec![settings]).unwrap()))
    }
}

struct Served(Arc<Files>);

/// A response with its body read.
#[derive(Debug)]
struct Got {
    status: u16,
    fields: pronghorn_wire::Fields,
    body: String,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .get(name)
            .map(|v| std::str::from_utf8(v).unwrap())
    }
}

impl Served {
    async fn ask(&self, method: &str, path: &str, fields: &str) -> Option<Got> {
        let request = request(&format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
        ));
        let response = self.0.answer(&request).await?.response;
        let len = response.body.known_len();
        let mut body = Vec::new();
        let mut reader = Reader::new(response.body);
        loop {
            match std::future::poll_fn(|cx| reader.poll_next(cx)).await {
                Read::Bytes(bytes) => body.extend_from_slice(&bytes),
                Read::End => break,
                Read::Broken => panic!("broken off after {}", body.len()),
            }
        }
        assert_eq!(len, Some(body.len() as u64), "{path}");
        Some(Got {
            status: response.status,
            fields: response.fields,
            body: String::from_utf8(body).unwrap(),
        })
    }

    async fn get(&self, path: &str) -> Option<Got> {
        self.ask("GET", path, "").await
    }

    async fn with(&self, path: &str, fields: &str) -> Got {
        self.ask("GET", path, fields).await.unwrap()
    }

    async fn body(&self, path: &str) -> Option<String> {
        self.get(path).await.map(|got| got.body)
    }
}

#[tokio::test]
async fn a_file_with_what_describes_it() {
    let site = Site::new();
    site.write("public/large.txt", &"x".repeat(600_000));
    site.write("public/empty.js", "");
    let files = site.files(|_| {});
    for _ in 0..2 {
        let got = files.get("/a.css").await.unwrap();
        assert_eq!((got.status, got.body.as_str()), (200, "0123456789"));
        assert_eq!(got.field("content-type"), Some("text/css; charset=utf-8"));
        assert_eq!(got.field("accept-ranges"), Some("bytes"));
        assert!(got.field("etag").unwrap().ends_with("-a\""));
        assert!(got.field("last-modified").unwrap().ends_with(" GMT"));
        assert_eq!(files.body("/large.txt").await.unwrap().len(), 600_000);
        assert_eq!(files.body("/empty.js").await.unwrap(), "");
    }
    assert!(files.get("/nope.css").await.is_none());
    assert!(files.get("/a.css/").await.is_none(), "no folder");
    assert!(files.get("/").await.is_none());
    assert!(files.ask("POST", "/a.css", "").await.is_none());
    assert_eq!(files.ask("HEAD", "/a.css", "").await.unwrap().status, 200);
}

#[tokio::test]
async fn html_and_xml_say_their_charset_themselves() {
    let site = Site::new();
    let files = site.files(|_| {});
    for (name, expected) in [
        ("old.html", "text/html"),
        ("OLD.HTM", "text/html"),
        ("old.shtml", "text/html"),
        ("feed.xml", "text/xml"),
        ("sheet.xsl", "text/xml"),
        ("page.xhtml", "application/xhtml+xml"),
        ("feed.atom", "application/atom+xml"),
        ("picture.svg", "image/svg+xml"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("b.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
    ] {
        site.write(&format!("public/{name}"), "x");
        let got = files.get(&format!("/{name}")).await.unwrap();
        assert_eq!(got.field("content-type"), Some(expected), "{name}");
    }
}

#[tokio::test]
async fn what_is_never_served() {
    let site = Site::new();
    for name in ["index.php", "x.PhP5", "x.phar", "x.inc", "x.php.bak"] {
        site.write(&format!("public/{name}"), "<?php secret");
    }
    for name in [".env", ".git/config", "a/.htaccess"] {
        site.write(&format!("public/{name}"), "secret");
    }
    site.write("public/.well-known/security.txt", "open");
    let files = site.files(|settings| settings.links = Links::Anywhere);
    for path in [
        "/index.php",
        "/index.php/",
        "/index.php/a.css",
        "/INDEX.PHP",
        "/%69ndex.%70hp",
        "/index.php%20",
        "/index.php%00.css",
        "/x.PhP5",
        "/x.phar",
        "/x.inc",
        "/x.php.bak",
        "/.env",
        "/%2eenv",
        "//.env",
        "/.git/config",
        "/a/.htaccess",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..%c0%afsecret.txt",
    ] {
        let got = files.get(path).await;
        assert!(got.is_none(), "{path}: {got:?}");
    }
    for path in [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/a/../../secret.txt",
    ] {
        let got = files.get(path).await.unwrap();
        assert_eq!((got.status, got.body.as_str()), (403, ""), "{path}");
    }
    assert_eq!(
        files.body("/.well-known/security.txt").await.unwrap(),
        "open"
    );
    assert!(
        Files::open(vec![RootSettings {
            index: vec!["index.php".into()],
            ..site.settings()
        }])
        .is_err()
    );
}

#[tokio::test]
async fn links_as_the_root_says() {
    let site = Site::new();
    let public = site.0.join("public");
    symlink("a.css", public.join("near.css")).unwrap();
    symlink(public.join("a.css"), public.join("absolute.css")).unwrap();
    symlink("../secret.txt", public.join("out.txt")).unwrap();
    symlink(&site.0, public.join("folder")).unwrap();
    symlink("loop.txt", public.join("loop.txt")).unwrap();
    let paths = [
        "/near.css",
        "/absolute.css",
        "/out.txt",
        "/folder/secret.txt",
        "/loop.txt",
    ];
    for (links, served) in [
        (Links::Never, [false; 5]),
        (Links::Inside, [true, true, false, false, false]),
        (Links::Anywhere, [true, true, true, true, false]),
    ] {
        let files = site.files(|settings| settings.links = links);
        for (path, served) in paths.iter().zip(served) {
            assert_eq!(files.get(path).await.is_some(), served, "{links:?} {path}");
        }
    }
    // A root may be a link itself, as in a deployment by links.
    let current = site.0.join("current");
    symlink("public", &current).unwrap();
    let files = site.files(|settings| {
        settings.folder.clone_from(&current);
        settings.cache_duration = Duration::ZERO;
    });
    assert_eq!(files.body("/a.css").await.unwrap(), "0123456789");
}

#[tokio::test]
async fn what_is_no_file_holds_nothing_up() {
    let site = Site::new();
    let pipe = site.0.join("public/pipe.txt");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let files = site.files(|_| {});
    assert!(files.get("/pipe.txt").await.is_none());
    std::fs::create_dir(site.0.join("public/folder.css")).unwrap();
    assert!(files.get("/folder.css").await.is_none());
}

#[tokio::test]
async fn endings_as_the_root_says() {
    let site = Site::new();
    for name in ["b.JS", "c.map", "plain"] {
        site.write(&format!("public/{name}"), "x");
    }
    let is_served = async |files: &Served| {
        let mut all = Vec::new();
        for path in ["/a.css", "/b.JS", "/c.map", "/plain"] {
            all.push(files.get(path).await.is_some());
        }
        all
    };
    let files = site.files(|settings| {
        settings.forbidden = Forbidden::new(&[".map".into(), ".js".into()]);
    });
    assert_eq!(is_served(&files).await, [true, false, false, true]);
    for copy in ["/c.map.gz", "/c.map.BR", "/b.JS.zip"] {
        site.write(&format!("public{copy}"), "a copy");
        assert!(files.get(copy).await.is_none(), "{copy}");
    }
    for (target, link) in [
        ("c.map", "near.css"),
        ("c.map.gz", "copy.css"),
        ("a.css", "good.css"),
    ] {
        symlink(target, site.0.join("public").join(link)).unwrap();
        let is_sent = files
            .get(&format!("/{link}"))
            .await
            .is_some_and(|got| got.status == 200);
        assert_eq!(is_sent, target == "a.css", "{link}");
    }
    site.write("public/a.css.gz", "a copy");
    assert!(files.get("/a.css.gz").await.is_some());
    let files = site.files(|settings| settings.allow = vec![".js".into(), ".css".into()]);
    assert_eq!(is_served(&files).await, [true, true, false, false]);
    let files = site.files(|settings| settings.without_ending = false);
    assert_eq!(is_served(&files).await, [true, true, true, false]);
}

#[tokio::test]
async fn pages_of_folders_and_of_an_application() {
    let site = Site::new();
    site.write("public/index.html", "home");
    site.write("public/docs/index.html", "docs");
    let files = site.files(|settings| {
        settings.index = vec!["index.htm".into(), "index.html".into()];
    });
    assert_eq!(files.body("/").await.unwrap(), "home");
    assert_eq!(files.body("/docs/").await.unwrap(), "docs");
    let got = files.get("/docs?a=b").await.unwrap();
    assert_eq!(
        (got.status, got.field("location")),
        (301, Some("/docs/?a=b"))
    );
    let got = files.get("//docs").await.unwrap();
    assert_eq!(got.field("location"), Some("/docs/"), "and no other host");
    assert!(files.get("/none/").await.is_none());

    let files = site.files(|settings| settings.fallback = Some("index.html".into()));
    let page = "Accept: text/html,*/*;q=0.8\r\n";
    assert_eq!(files.with("/users/1", page).await.body, "home");
    assert_eq!(files.with("/users/", page).await.body, "home");
    assert!(files.get("/users/1").await.is_none(), "no browser");
    assert!(files.ask("GET", "/nope.js", page).await.is_none());
    assert!(files.ask("GET", "/index.php", page).await.is_none());
    assert_eq!(files.with("/..", page).await.status, 403);
}

#[tokio::test]
async fn several_roots_with_fields_of_their_own() {
    let site = Site::new();
    site.write("build/app.js", "built");
    site.write("build/a.css", "other");
    let mut build = RootSettings::new(site.0.join("build"));
    build.prefix = "/assets/".into();
    build.fields.push("Cache-Control", "immutable");
    let files = Served(Arc::new(Files::open(vec![build, site.settings()]).unwrap()));
    let got = files.get("/assets/app.js").await.unwrap();
    assert_eq!(
        (got.body.as_str(), got.field("cache-control")),
        ("built", Some("immutable"))
    );
    let got = files.get("/a.css").await.unwrap();
    assert_eq!(
        (got.body.as_str(), got.field("cache-control")),
        ("0123456789", None)
    );
    assert!(files.get("/app.js").await.is_none());
    assert!(files.get("/assetsapp.js").await.is_none());
    assert_eq!(files.get("/assets/../a.css").await.unwrap().status, 403);
}

#[tokio::test]
async fn other_codings_beside_a_file() {
    let site = Site::new();
    site.write("public/a.css.br", "brotli");
    site.write("public/a.css.gz", "gzipped");
    let files = site.files(|settings| {
        settings.precompressed = vec![Coding::Brotli, Coding::Zstd, Coding::Gzip];
    });
    let plain = files.get("/a.css").await.unwrap();
    assert_eq!(
        (plain.body.as_str(), plain.field("vary")),
        ("0123456789", Some("Accept-Encoding"))
    );
    let coded = files.with("/a.css", "Accept-Encoding: gzip, br\r\n").await;
    assert_eq!(
        (coded.body.as_str(), coded.field("content-encoding")),
        ("brotli", Some("br"))
    );
    assert_eq!(coded.field("content-type"), plain.field("content-type"));
    assert_ne!(coded.field("etag"), plain.field("etag"));
    let zstd = files.with("/a.css", "Accept-Encoding: zstd\r\n").await;
    assert_eq!(zstd.field("content-encoding"), None, "there is none");
    let range = files
        .with("/a.css", "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n")
        .await;
    assert_eq!(
        (range.status, range.body.as_str()),
        (206, "gzip"),
        "of what is sent"
    );
}

#[tokio::test]
async fn another_coding_of_an_older_version_is_not_sent() {
    let site = Site::new();
    site.write("public/a.css.gz", "gzipped");
    let beside = std::fs::File::open(site.0.join("public/a.css.gz")).unwrap();
    let modified = site.0.join("public/a.css").metadata().unwrap().modified();
    let modified = modified.unwrap();
    let files = site.files(|settings| {
        settings.precompressed = vec![Coding::Gzip];
        settings.cache_duration = Duration::ZERO;
    });
    for (older, coding) in [(0, Some("gzip")), (2, None), (0, Some("gzip"))] {
        beside
            .set_modified(modified - Duration::from_secs(older))
            .unwrap();
        let got = files.with("/a.css", "Accept-Encoding: gzip\r\n").await;
        assert_eq!(got.field("content-encoding"), coding, "{older} s");
    }
}

#[tokio::test]
async fn conditions_and_ranges() {
    let site = Site::new();
    site.write("public/large.txt", &"0123456789".repeat(10_000));
    let files = site.files(|_| {});
    let got = files.get("/a.css").await.unwrap();
    let (etag, date) = (
        got.field("etag").unwrap(),
        got.field("last-modified").unwrap(),
    );
    for fields in [
        format!("If-None-Match: W/{etag}\r\n"),
        format!("If-Modified-Since: {date}\r\nRange: bytes=0-1\r\n"),
    ] {
        let known = files.with("/a.css", &fields).await;
        assert_eq!((known.status, known.body.as_str()), (304, ""));
        assert_eq!(
            (known.field("etag"), known.field("content-type")),
            (Some(etag), None)
        );
    }
    let failed = files.with("/a.css", "If-Match: \"other\"\r\n").await;
    assert_eq!(failed.status, 412);
    for path in ["/a.css", "/large.txt"] {
        let part = files.with(path, "Range: bytes=2-4\r\n").await;
        assert_eq!((part.status, part.body.as_str()), (206, "234"), "{path}");
        assert!(
            part.field("content-range")
                .unwrap()
                .starts_with("bytes 2-4/1")
        );
    }
    let end = files.with("/large.txt", "Range: bytes=-3\r\n").await;
    assert_eq!(
        (end.body.as_str(), end.field("content-range")),
        ("789", Some("bytes 99997-99999/100000"))
    );
    let none = files.with("/a.css", "Range: bytes=10-\r\n").await;
    assert_eq!(
        (none.status, none.field("content-range")),
        (416, Some("bytes */10"))
    );
    let old = files
        .with("/a.css", "Range: bytes=2-4\r\nIf-Range: \"old\"\r\n")
        .await;
    assert_eq!((old.status, old.body.len()), (200, 10));
    let head = files
        .ask("HEAD", "/a.css", "Range: bytes=2-4\r\n")
        .await
        .unwrap();
    assert_eq!(head.status, 200);

    let parts = files.with("/large.txt", "Range: bytes=0-1,-2\r\n").await;
    let kind = parts.field("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let expected = format!(
        "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 0-1/100000\r\n\r\n01\
         \r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 99998-99999/100000\r\n\r\n89\
         \r\n--{boundary}--\r\n"
    );
    assert_eq!((parts.status, parts.body), (206, expected));
}

#[tokio::test]
async fn a_change_shows_when_what_was_seen_is_old() {
    tokio::time::pause();
    let site = Site::new();
    let files = site.files(|_| {});
    assert_eq!(files.body("/a.css").await.unwrap(), "0123456789");
    site.write("public/a.css", "new");
    assert_eq!(files.body("/a.css").await.unwrap(), "0123456789");
    tokio::time::advance(CACHE_DURATION).await;
    assert_eq!(files.body("/a.css").await.unwrap(), "new");
    std::fs::remove_file(site.0.join("public/a.css")).unwrap();
    tokio::time::advance(CACHE_DURATION).await;
    assert!(files.get("/a.css").await.is_none());
    // A deployment puts another folder in its place.
    std::fs::rename(site.0.join("public"), site.0.join("old")).unwrap();
    site.write("public/a.css", "next");
    tokio::time::advance(CACHE_DURATION).await;
    assert_eq!(files.body("/a.css").await.unwrap(), "next");
}

#[tokio::test]
async fn what_may_not_be_read_is_not_there() {
    if rustix::process::geteuid().is_root() {
        return; // may read everything
    }
    let site = Site::new();
    let path = site.0.join("public/a.css");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o0)).unwrap();
    assert!(site.files(|_| {}).get("/a.css").await.is_none());
}

#[tokio::test]
async fn an_application_names_no_hidden_file_by_a_link() {
    let directory = Directory::new();
    std::fs::create_dir_all(directory.join("root/.git")).unwrap();
    for name in ["x.php", ".hid", ".git/config", "a.txt"] {
        std::fs::write(directory.join("root").join(name), "x").unwrap();
    }
    let root = directory.join("root");
    for (link, target) in [
        ("source.txt", "x.php"),
        ("hidden.txt", ".hid"),
        ("git", ".git"),
        ("b.txt", "a.txt"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let below = async |name: &str| {
        let directories = Arc::from([root.clone()]);
        let opened = crate::file::open(root.join(name), directories, None, is_public);
        opened.await.is_ok()
    };
    let by_path = |name: &str, with_root: bool| {
        let path = root.join(name).canonicalize().unwrap();
        is_public(path.strip_prefix(&root).ok().filter(|_| with_root), &path)
    };
    for (name, is_sent) in [
        ("a.txt", true),
        ("b.txt", true),
        ("source.txt", false),
        ("hidden.txt", false),
        ("git/config", false),
    ] {
        assert_eq!(below(name).await, is_sent, "{name}");
        assert_eq!(by_path(name, true), is_sent, "{name}");
    }
    assert!(!by_path("source.txt", false) && !by_path("hidden.txt", false));
}

/// As an application's user does, who owns the directory above.
#[tokio::test]
async fn behind_a_strangers_link_lies_what_everybody_may_read() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes files of others");
        return;
    }
    let site = Site::new();
    let at = |name: &str| site.0.join(name);
    for (name, content, mode) in [
        ("roots/shadow", "secret", 0o600),
        ("roots/open", "open", 0o644),
    ] {
        site.write(name, content);
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    for name in ["", "roots"] {
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::rename(at("public"), at("away")).unwrap();
    symlink("roots", at("public")).unwrap();
    let body = async |files: &Served, path| files.get(path).await.map(|got| got.body);
    let files = site.files(|_| ());
    assert_eq!(
        body(&files, "/shadow").await.as_deref(),
        Some("secret"),
        "root's link"
    );
    lchown(at("public"), Some(65534), None).unwrap();
    let files = site.files(|_| ());
    assert_eq!(body(&files, "/open").await.as_deref(), Some("open"));
    assert_eq!(body(&files, "/shadow").await, None);
}
