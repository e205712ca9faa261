//! The pages for those who come from another server: each translated configuration is one.

use std::path::Path;

use pronghorn_testkit::{Server, Site};

#[test]
fn what_nginx_and_php_fpm_had_is_translated() {
    check("from-nginx-fpm.md");
}

#[test]
fn what_apache_had_is_translated() {
    check("from-apache.md");
}

/// Asks `pronghorn check` about each of a page's configurations.
fn check(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/migration")
        .join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    let mut checked = 0;
    for section in text.split("\n## ").skip(1) {
        let (title, content) = section.split_once('\n').unwrap_or((section, ""));
        let Some((before, translated)) = content.split_once("```yaml\n") else {
            assert!(
                !title.starts_with(char::is_numeric),
                "{page}: `{title}` has no translation"
            );
            continue;
        };
        assert!(
            before.contains("```"),
            "{page}: `{title}` translates nothing"
        );
        let (yaml, _) = translated.split_once("```").expect("the block ends");
        let site = Site::new().file("pronghorn.yaml", yaml);
        let ended = Server::run(&site, &["check"]);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        // What is not on this machine is no mistake of the file, nor is who runs this test.
        let allowed = [
            "No such file or directory",
            "not found",
            "names nobody",
            "names a user that does not exist",
            "the server runs as root",
        ];
        let told = |line: &&str| line.starts_with("warning: ") || line.starts_with("error: ");
        for line in said.lines().filter(told) {
            assert!(
                allowed.iter().any(|words| line.contains(words)),
                "{page}: `{title}`\n{line}"
            );
        }
        checked += 1;
    }
    assert!(checked >= 10, "{page}: {checked} configurations");
}
