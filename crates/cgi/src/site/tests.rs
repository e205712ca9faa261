use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A look at a tree that is a list of files.
fn look_at<'a>(files: &'a [&str]) -> impl FnMut(&[u8]) -> Result<Found, ()> + use<'a> {
    let files: BTreeSet<String> = files.iter().map(|&file| file.to_owned()).collect();
    move |path| {
        let path = std::str::from_utf8(path).map_err(drop)?;
        let below = format!("{path}/");
        Ok(if files.contains(path) {
            Found::File
        } else if path.is_empty() || files.iter().any(|file| file.starts_with(&below)) {
            Found::Folder
        } else {
            Found::Nothing
        })
    }
}

fn site(index: &[&str], fallback: Option<&str>) -> Site {
    let index = index.iter().map(|&name| name.to_owned()).collect();
    Site::new(PathBuf::from("/srv"), index, fallback)
}

const TREE: [&str; 12] = [
    "index.php",
    "wp-login.php",
    "style.css",
    "admin/index.php",
    "docs/index.html",
    "both/index.html",
    "both/index.php",
    "odd.php/inner.php",
    "uploads/shell.jpg",
    "Upper.PHP",
    ".git/hook.php",
    ".well-known/acme.php",
];

fn what(site: &Site, path: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match site.resolve(path.as_bytes(), look_at(&TREE)).unwrap() {
        Target::Script(script) if script.info().is_empty() => text(script.name()),
        Target::Script(script) => format!("{} + {}", text(script.name()), text(script.info())),
        Target::Page(path) => format!("page {}", text(&path)),
        other => format!("{other:?}"),
    }
}

#[test]
fn scripts_are_found_by_their_name_and_what_follows_it() {
    let site = site(&["index.php"], Some("index.php"));
    for (path, expected) in [
        ("/wp-login.php", "/wp-login.php"),
        ("/wp-login.php/", "/wp-login.php + /"),
        ("/wp-login.php/a/b.php", "/wp-login.php + /a/b.php"),
        ("//wp-login.php//a/./b", "/wp-login.php + /a/b"),
        ("/index.php/.env", "/index.php + /.env"),
        ("/%77p-login.php/%41", "/wp-login.php + /A"),
        ("/odd.php/inner.php/x", "/odd.php/inner.php + /x"),
        ("/admin/", "/admin/index.php"),
        ("/", "/index.php"),
        ("/admin", "Folder"),
        ("/any/thing", "/index.php"),
        ("/any/thing/", "/index.php"),
        ("/.well-known/acme.php", "/.well-known/acme.php"),
        ("/wp-login.php/a%2Fb", "/wp-login.php + /a/b"),
        ("/wp-login.php/x%2F%2F.%5cy/", "/wp-login.php + /x/.\\y/"),
        ("/odd.php/inner.php/%5C", "/odd.php/inner.php + /\\"),
        ("/wp-json/wp/v2/templates/x%2F%2Findex", "/index.php"),
        ("/files/a%5Cb", "/index.php"),
        ("/any\\thing", "/index.php"),
        ("/%2F", "/index.php"),
    ] {
        assert_eq!(what(&site, path), expected, "{path}");
    }
}

#[test]
fn what_is_no_script_is_never_run() {
    let site = site(&["index.php"], None);
    for (path, expected) in [
        ("/uploads/shell.jpg/x.php", "NotFound"),
        ("/uploads/shell.jpg", "Closed"),
        ("/style.css/x.php", "NotFound"),
        ("/Upper.PHP", "Closed"),
        ("/WP-LOGIN.php", "NotFound"),
        ("/.git/hook.php", "Closed"),
        ("/admin/.php", "NotFound"),
        ("/missing.php", "NotFound"),
        ("/missing.php/x", "NotFound"),
        ("/wp-login.php%00.jpg", "BadRequest"),
        ("/wp-login.php/%00", "BadRequest"),
        ("/admin%2findex.php", "NotFound"),
        ("/admin%2f", "NotFound"),
        ("/admin%5Cindex.php", "NotFound"),
        ("/admin\\index.php", "NotFound"),
        ("/%2fwp-login.php", "NotFound"),
        ("/wp-login.php%2F", "NotFound"),
        ("/wp-login.php%5C", "NotFound"),
        ("/odd.php%2finner.php", "NotFound"),
        ("/a%2Fb/../wp-login.php", "Forbidden"),
        ("/wp-login.php/..%2f..%2fx", "Forbidden"),
        ("/..%5cwp-login.php", "Forbidden"),
        ("/a/../wp-login.php", "Forbidden"),
        ("/%2e%2e/wp-login.php", "Forbidden"),
        ("/any", "NotFound"),
    ] {
        assert_eq!(what(&site, path), expected, "{path}");
    }
}

#[test]
fn hidden_and_missing_names_are_the_applications_business_where_there_is_one_for_all() {
    let site = site(&["index.php"], Some("index.php"));
    for path in [
        "/.env",
        "/.git/",
        "/.git",
        "/.git/hook.php/",
        "/Lower.PHP",
        "/uploads/shell.jpg/x",
    ] {
        assert_eq!(what(&site, path), "/index.php", "{path}");
    }
    // But nobody asks it for what is there and is not sent: its answer would look like that of the
    // file.
    for path in ["/.git/hook.php", "/Upper.PHP"] {
        assert_eq!(what(&site, path), "Closed", "{path}");
    }
    // A name that asks for a script is no page of the application.
    assert_eq!(what(&site, "/missing.php"), "NotFound");
}

#[test]
fn what_must_not_be_read_is_nobody_elses() {
    let site = site(&["index.php", "index.html"], Some("front.php"));
    let look = |path: &[u8]| {
        Ok::<_, ()>(match path {
            b"front.php" => Found::File,
            b"" | b"linked" | b"own" | b"own/.git" => Found::Folder,
            _ if path.starts_with(b"out") || path.ends_with(b"x") => Found::Closed,
            b"linked/index.php" | b"own/.x" => Found::Closed,
            _ => Found::Nothing,
        })
    };
    for (path, expected) in [
        ("/out.js", Target::Closed),
        ("/out/", Target::Closed),
        ("/out", Target::Closed),
        ("/out.php", Target::NotFound),
        ("/out.php/more", Target::NotFound),
        ("/linked/", Target::Closed),
        ("/linked", Target::Closed),
        ("/own/.x", Target::Closed),
    ] {
        assert_eq!(site.resolve(path.as_bytes(), look), Ok(expected), "{path}");
    }
    for path in ["/own/", "/own/none", "/own/.git", "/a%2Fx", "/own/x%2F"] {
        let Ok(Target::Script(script)) = site.resolve(path.as_bytes(), look) else {
            panic!("{path}")
        };
        assert_eq!(script.name(), b"/front.php", "{path}");
    }
    let Ok(Target::NotFound) = site.resolve_program(b"/out", look) else {
        panic!("a program runs")
    };
}

#[test]
fn the_first_name_that_is_there_stands_for_a_folder() {
    let scripts = site(&["index.php", "index.html"], None);
    assert_eq!(what(&scripts, "/both/"), "/both/index.php");
    assert_eq!(what(&scripts, "/docs/"), "page /docs/index.html");
    assert_eq!(what(&scripts, "/docs"), "Folder");
    let pages = site(&["index.html", "index.php"], None);
    assert_eq!(what(&pages, "/both/"), "page /both/index.html");
    assert_eq!(what(&site(&[], None), "/both/"), "NotFound");
}

#[test]
fn the_one_for_all_must_be_there() {
    assert_eq!(what(&site(&[], Some("/app.php")), "/x"), "NotFound");
    assert_eq!(
        what(&site(&[], Some("admin/index.php")), "/x"),
        "/admin/index.php"
    );
}

#[test]
fn nothing_runs_in_a_folder_without_scripts() {
    let folders = ["uploads".to_owned(), "/admin/files/".to_owned()];
    let tree = [
        "index.php",
        "uploads/index.php",
        "uploads/index.html",
        "uploads/2026/shell.php",
        "uploads.php",
        "uploads2/a.php",
        "admin/index.php",
        "admin/files/index.php",
    ];
    let site = site(&["index.php", "index.html"], Some("index.php")).without_scripts_in(&folders);
    for at in ["", "/shop"] {
        let site = site.clone().at(at);
        let what = |path: &str| {
            let path = format!("{at}{path}");
            let target = site.resolve(path.as_bytes(), look_at(&tree)).unwrap();
            match target {
                Target::Script(script) => String::from_utf8_lossy(script.name()).into_owned(),
                Target::Page(page) => String::from_utf8_lossy(&page).into_owned(),
                other => format!("{other:?}"),
            }
        };
        for (path, expected) in [
            ("/uploads/index.php", "NotFound"),
            ("/uploads/2026/shell.php", "NotFound"),
            ("/uploads/2026/shell.php/x", "NotFound"),
            ("//uploads/.//2026/shell%2ephp", "NotFound"),
            ("/%75ploads/2026/shell.php", "NotFound"),
            ("/uploads/", "/uploads/index.html"),
            ("/uploads", "Folder"),
            ("/uploads/none.jpg", "/index.php"),
            ("/uploads%2f2026/shell.php", "/index.php"),
            ("/uploads%2f2026%2fshell.php", "/index.php"),
            ("/uploads/2026%2fshell.php", "/index.php"),
            ("/uploads/2026/shell.php%2fx", "/index.php"),
            ("/uploads.php", "/uploads.php"),
            ("/uploads2/a.php", "/uploads2/a.php"),
            ("/admin/", "/admin/index.php"),
            ("/admin/files/index.php", "NotFound"),
            ("/admin/files/", "/index.php"),
            ("/index.php/uploads/2026/shell.php", "/index.php"),
        ] {
            assert_eq!(what(path), expected, "{at}{path}");
        }
    }
}

#[test]
fn a_site_may_lie_below_a_path_of_its_own() {
    let site = site(&["index.php"], Some("index.php")).at("/shop/");
    for (path, expected) in [
        ("/shop/admin/", "/admin/index.php"),
        ("/shop/wp-login.php/x", "/wp-login.php + /x"),
        ("/shop//wp-login.php", "/wp-login.php"),
        ("/shop", "Folder"),
        ("/shop/", "/index.php"),
        ("/shop/any", "/index.php"),
        ("/shop/wp-login.php/a%2Fb", "/wp-login.php + /a/b"),
        ("/shop/%2Fwp-login.php", "/index.php"),
        ("/shop//admin%2Findex.php", "/index.php"),
        ("/shop%2Fwp-login.php", "NotFound"),
        ("/%73hop%2Fwp-login.php", "NotFound"),
        ("/shopping/wp-login.php", "NotFound"),
        ("/wp-login.php", "NotFound"),
        ("/", "NotFound"),
    ] {
        assert_eq!(what(&site, path), expected, "{path}");
    }
}

#[test]
fn a_program_is_the_first_file_on_the_way() {
    let site = site(&[], None).at("/cgi-bin");
    let what = |path: &str| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match site
            .resolve_program(path.as_bytes(), look_at(&TREE))
            .unwrap()
        {
            Target::Script(script) => format!("{} + {}", text(script.name()), text(script.info())),
            other => format!("{other:?}"),
        }
    };
    for (path, expected) in [
        ("/cgi-bin/style.css", "/style.css + "),
        ("/cgi-bin/style.css/a/.b", "/style.css + /a/.b"),
        (
            "/cgi-bin/uploads/shell.jpg/x.php",
            "/uploads/shell.jpg + /x.php",
        ),
        ("/cgi-bin/uploads/", "NotFound"),
        ("/cgi-bin/uploads", "NotFound"),
        ("/cgi-bin/", "NotFound"),
        ("/cgi-bin", "NotFound"),
        ("/cgi-bin/missing/style.css", "NotFound"),
        ("/cgi-bin/STYLE.CSS", "NotFound"),
        ("/cgi-bin/.git/hook.php", "NotFound"),
        ("/style.css", "NotFound"),
        ("/cgi-bin/../cgi-bin/style.css", "Forbidden"),
        ("/cgi-bin/style.css/a%2Fb%5C", "/style.css + /a/b\\"),
        ("/cgi-bin/uploads%2fshell.jpg", "NotFound"),
        ("/cgi-bin/uploads/shell.jpg%2f", "NotFound"),
        ("/cgi-bin/uploads\\shell.jpg", "NotFound"),
        ("/cgi-bin%2fstyle.css", "NotFound"),
        ("/cgi-bin/style.css/%00", "BadRequest"),
    ] {
        assert_eq!(what(path), expected, "{path}");
    }
}

/// The table of the reference, with the files that it names.
#[test]
fn the_reference_tells_the_truth() {
    const PAGE: &str = include_str!("../../../../docs/reference/scripts.md");
    let (before, table) = PAGE.split_once("| path | answer |").expect("the table");
    let (_, files) = before
        .rsplit_once("`no_scripts: [uploads]`:")
        .expect("the files");
    let files: Vec<&str> = files.split('`').skip(1).step_by(2).collect();
    assert!(files.len() >= 10, "{files:?}");
    let site = site(&["index.php", "index.html"], Some("index.php"))
        .without_scripts_in(&["uploads".to_owned()]);
    let mut rows = 0;
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let [_, path, answer, name, info, _] = cells[..] else {
            panic!("{row}")
        };
        let target = site.resolve(path.as_bytes(), look_at(&files)).unwrap();
        let is_file = || files.contains(&path.trim_start_matches('/'));
        let found = match &target {
            // The handler of files is asked before.
            Target::Closed if is_file() && !path.to_lowercase().contains("php") => "file",
            Target::Script(_) => "script",
            Target::Page(_) => "file",
            Target::Folder => "301",
            Target::NotFound | Target::Closed => "404",
            Target::Forbidden => "403",
            Target::BadRequest => "400",
        };
        assert_eq!(found, answer, "{row}");
        if let (Target::Script(script), "script") = (&target, answer) {
            assert_eq!(
                (script.name(), script.info()),
                (name.as_bytes(), info.as_bytes()),
                "{row}"
            );
        }
        rows += 1;
    }
    assert!(rows > 25, "{rows} rows");
}

proptest! {
    #[test]
    fn no_path_leads_where_none_may(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        fuzz_site(&[b"/", bytes.as_slice()].concat());
    }

    #[test]
    fn no_path_of_telling_parts_does(
        start in prop::sample::select(vec!["", "/shop", "/up/load", "/shop//up/load", "/%75p/./load", "/.up"]),
        parts in prop::collection::vec(prop::sample::select(vec![
            "/", "/", ".", "..", "%2e", "%2f", "%00", "\\", "%5c", "up", "load", "a", ".well-known", "%", "index", ".PHP", ".php", "\u{212a}",
        ]), 0..6),
        end in prop::sample::select(vec!["", "/a.php", "/b.php", "/b.php/c", "/b%2ephp", "/.php"]),
    ) {
        fuzz_site(format!("{start}/{}{end}", parts.concat()).as_bytes());
    }
}
