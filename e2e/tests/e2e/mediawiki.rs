//! MediaWiki as Debian has it, with its database in a file: `examples/mediawiki`.

use std::process::Command;

use pronghorn_testkit::{Server, binary, free_address};
use serde_json::Value;

use crate::apps::{Browser, json};
use crate::example::copy;
use crate::ring::extension;

#[test]
fn a_wiki_is_made_read_and_written() {
    extension();
    let site = copy("mediawiki");
    let mut command = Command::new("sh");
    command
        .arg("run")
        .env("ADDRESS", free_address().to_string())
        .env("PRONGHORN", binary());
    let server = Server::start_by(command, site, &[]);

    let mut visitor = Browser::by_address(&server);
    let moved = visitor.get("/");
    let to = moved.header("location").unwrap_or_default();
    assert!(to.ends_with("/wiki/Main_Page"), "{}: {to}", moved.status);
    let main = visitor.get("/wiki/Main_Page").text();
    assert!(
        main.contains("<strong>MediaWiki has been installed.</strong>"),
        "{main}"
    );
    let styles = visitor.get("/load.php?modules=site.styles&only=styles");
    let kind = styles.header("content-type");
    assert_eq!(
        (styles.status, kind),
        (200, Some("text/css; charset=utf-8"))
    );
    assert_eq!(visitor.get("/resources/assets/wiki.png").status, 200);

    let mut admin = Browser::by_address(&server);
    log_in(&mut admin);
    let csrf = token(&mut admin, "csrf");
    let text = encoded("A ''page'' of Äda's \\ \"wiki\"");
    let saved = api(
        &mut admin,
        &format!("action=edit&title=Notes%2FÄ&text={text}&token={csrf}"),
    );
    assert_eq!(saved["edit"]["result"], "Success", "{saved}");
    let page = visitor.get("/wiki/Notes/%C3%84").text();
    assert!(
        page.contains("A <i>page</i> of Äda's \\ \"wiki\""),
        "{page}"
    );
    let found = json(&visitor.get("/rest.php/v1/page/Notes%2F%C3%84"));
    assert_eq!(found["title"], "Notes/Ä", "{found}");
    assert_eq!(visitor.get("/wiki/Nothing").status, 404);

    upload(&server, &mut admin);
    server.stop();
}

fn upload(server: &Server, admin: &mut Browser) {
    let picture = std::fs::read("/usr/share/mediawiki/resources/assets/change-your-logo-icon.svg");
    let picture = picture.expect("MediaWiki is installed");
    // What looks like a picture by its name.
    let script = b"<?php echo 'it ', 'ran';".as_slice();
    let csrf = token(admin, "csrf")
        .replace("%2B", "+")
        .replace("%5C", "\\");
    let png = std::fs::read("/usr/share/mediawiki/resources/assets/wiki.png");
    let png = png.expect("MediaWiki is installed");
    for (name, content, is_taken) in [
        ("Icon.png", png.as_slice(), true),
        ("Icon.svg", picture.as_slice(), false),
        ("Evil.php", script, false),
        ("Evil.png", script, false),
    ] {
        let fields = [
            ("action", "upload"),
            ("format", "json"),
            ("filename", name),
            ("ignorewarnings", "1"),
            ("token", &csrf),
        ];
        let told = json(&admin.upload("/api.php", &fields, ("file", name, "image/png", content)));
        assert_eq!(
            told["upload"]["result"] == "Success",
            is_taken,
            "{name}: {told}"
        );
        if is_taken {
            let url = told["upload"]["imageinfo"]["url"]
                .as_str()
                .expect("where it is");
            let path = url
                .split_once(&server.address().to_string())
                .expect("here")
                .1;
            let got = Browser::by_address(server).get(path);
            assert_eq!(got.header("content-type"), Some("image/png"));
            assert!(got.body == content, "the picture is another");
        }
    }
    server
        .site()
        .write("wiki/site/images/evil.php", "<?php echo 'it ', 'ran';");
    for target in ["/images/evil.php", "/%69mages//evil.php/x.png"] {
        let answer = Browser::by_address(server).get(target).text();
        assert!(
            !answer.contains("it ran") && !answer.contains("<?php"),
            "{target}: {answer}"
        );
    }
}

fn log_in(admin: &mut Browser) {
    let token = token(admin, "login");
    for (password, status) in [("wrong", "FAIL"), ("pronghorn-wiki", "PASS")] {
        let answer = api(
            admin,
            &format!(
                "action=clientlogin&username=Admin&password={password}&loginreturnurl=http%3A%2F%2Fx%2F&logintoken={token}"
            ),
        );
        assert_eq!(answer["clientlogin"]["status"], status, "{answer}");
    }
}

/// Encoded as in a form.
fn token(browser: &mut Browser, kind: &str) -> String {
    let target = format!("/api.php?action=query&meta=tokens&type={kind}&format=json");
    let answer = json(&browser.get(&target));
    let token = answer["query"]["tokens"][format!("{kind}token")].as_str();
    encoded(token.expect("there is one"))
}

fn api(browser: &mut Browser, form: &str) -> Value {
    json(&browser.post("/api.php", &format!("format=json&{form}")))
}

fn encoded(text: &str) -> String {
    text.replace('%', "%25")
        .replace('+', "%2B")
        .replace('\\', "%5C")
        .replace('&', "%26")
        .replace(' ', "+")
}
