//! MediaWiki as Debian has it, with its database in a file: `examples/mediawiki`.

use std::fmt::Write as _;
use std::process::Command;

use pronghorn_testkit::{Server, binary, free_address, php_command, wait_for};
use serde_json::Value;

use crate::apps::{Browser, json};
use crate::example::copy;
use crate::ring::extension;

#[test]
fn a_wiki_is_made_read_and_written() {
    extension();
    let mut site = copy("mediawiki");
    for (name, config) in [("scripts", "pronghorn.yaml"), ("ahead", "preheat.yaml")] {
        let mut command = Command::new("sh");
        command
            .args(["run", config])
            .env("ADDRESS", free_address().to_string())
            .env("PRONGHORN", binary());
        let server = Server::start_by(command, site, &[]);
        read(&server);
        let mut admin = Browser::by_address(&server);
        log_in(&mut admin);
        write(&server, &mut admin, name);
        upload(&server, &mut admin, name);
        two_users_by_turns(&server, name);
        jobs_run(&server, config);
        let log = server.log();
        for trouble in ["PHP Warning", "PHP Fatal", "in spite of", "without a cache"] {
            assert!(!log.contains(trouble), "{log}");
        }
        site = server.into_site();
    }
}

fn read(server: &Server) {
    let mut visitor = Browser::by_address(server);
    let moved = visitor.get("/");
    let to = moved.header("location").unwrap_or_default();
    assert!(to.ends_with("/wiki/Main_Page"), "{}: {to}", moved.status);
    let main = visitor.get("/wiki/Main_Page");
    assert!(
        main.text()
            .contains("<strong>MediaWiki has been installed.</strong>"),
        "{}",
        main.text()
    );
    // What MediaWiki sets before it looks at a request, and when it sends its headers.
    assert_eq!(main.header("x-content-type-options"), Some("nosniff"));
    assert!(main.header("x-request-id").is_some(), "{:?}", main.status);
    let styles = visitor.get("/load.php?modules=site.styles&only=styles");
    let kind = styles.header("content-type");
    assert_eq!(
        (styles.status, kind),
        (200, Some("text/css; charset=utf-8"))
    );
    assert_eq!(visitor.get("/resources/assets/wiki.png").status, 200);
    assert_eq!(visitor.get("/wiki/Nothing").status, 404);
}

/// By programs, and by the form.
fn write(server: &Server, admin: &mut Browser, name: &str) {
    let mut visitor = Browser::by_address(server);
    let csrf = token(admin, "csrf");
    let text = encoded("A ''page'' of Äda's \\ \"wiki\"");
    let saved = api(
        admin,
        &format!("action=edit&title=Notes%2FÄ{name}&text={text}&token={csrf}"),
    );
    assert_eq!(saved["edit"]["result"], "Success", "{saved}");
    let page = visitor.get(&format!("/wiki/Notes/%C3%84{name}")).text();
    assert!(
        page.contains("A <i>page</i> of Äda's \\ \"wiki\""),
        "{page}"
    );
    let found = json(&visitor.get(&format!("/rest.php/v1/page/Notes%2F%C3%84{name}")));
    assert_eq!(found["title"], format!("Notes/Ä{name}"), "{found}");
    edit(admin, &format!("Form_{name}"), "''Slanted'' & \\ 'quoted'");
    let page = visitor.get(&format!("/wiki/Form_{name}")).text();
    assert!(page.contains("<i>Slanted</i> &amp; \\ 'quoted'"), "{page}");
}

fn edit(author: &mut Browser, title: &str, text: &str) {
    let form = author
        .get(&format!("/index.php?title={title}&action=edit"))
        .text();
    let mut fields = format!("wpTextbox1={}&wpSave=1&wpUltimateParam=1", encoded(text));
    for name in [
        "wpEditToken",
        "wpStarttime",
        "wpEdittime",
        "editRevId",
        "parentRevId",
        "wpUnicodeCheck",
    ] {
        _ = write!(fields, "&{name}={}", encoded(&field(&form, name)));
    }
    let saved = author.post(&format!("/index.php?title={title}&action=submit"), &fields);
    let to = saved.header("location").unwrap_or_default();
    assert!(
        saved.status == 302 && to.contains(&format!("/wiki/{title}")),
        "{}: {to}\n{}",
        saved.status,
        saved.text()
    );
}

/// The value of an input of a form, whatever stands between its name and that.
fn field(page: &str, name: &str) -> String {
    let input = page.split("<input").find_map(|input| {
        let input = input.split('>').next().unwrap_or_default();
        input.contains(&format!("name=\"{name}\"")).then_some(input)
    });
    let value = input
        .and_then(|input| input.split_once("value=\""))
        .and_then(|(_, rest)| rest.split('"').next());
    assert!(value.is_some(), "no {name} in\n{page}");
    value
        .unwrap_or_default()
        .replace("&#43;", "+")
        .replace("&amp;", "&")
}

/// By the wiki's own form, as people do; each finds itself in each page, and nobody else.
fn two_users_by_turns(server: &Server, name: &str) {
    let mut visitor = Browser::by_address(server);
    let mut users = ["Ada", "Berta"].map(|user| {
        let user = format!("{user} {name}");
        let mut browser = Browser::by_address(server);
        let token = token(&mut browser, "createaccount");
        let password = "a word that is long";
        let made = api(
            &mut browser,
            &format!(
                "action=createaccount&username={user}&password={password}&retype={password}&createreturnurl=http%3A%2F%2Fx%2F&createtoken={token}"
            ),
        );
        assert_eq!(made["createaccount"]["status"], "PASS", "{made}");
        let mut browser = Browser::by_address(server);
        let form = browser.get("/wiki/Special:UserLogin").text();
        let token = encoded(&field(&form, "wpLoginToken"));
        let entered = browser.post(
            "/wiki/Special:UserLogin",
            &format!("wpName={user}&wpPassword={password}&wploginattempt=1&authAction=login&wpEditToken=%2B%5C&title=Special:UserLogin&wpLoginToken={token}"),
        );
        assert_eq!(entered.status, 302, "{}", entered.text());
        (user, browser)
    });
    for round in 0..10 {
        for (user, browser) in &mut users {
            let page = browser.get("/wiki/Main_Page").text();
            assert!(
                page.contains(&format!("\"wgUserName\":\"{user}\"")),
                "{user} in round {round}:\n{page}"
            );
        }
        let page = visitor.get("/wiki/Main_Page").text();
        assert!(page.contains("\"wgUserName\":null"), "{page}");
    }
    for (user, browser) in &mut users {
        edit(browser, &format!("By_{}", user.replace(' ', "_")), user);
    }
    // They are noted behind the reply.
    let list =
        "/api.php?action=query&list=recentchanges&rcprop=title%7Cuser&format=json&rclimit=50";
    for (user, _) in &users {
        let title = format!("By {user}");
        wait_for(&title, || {
            let recent = json(&visitor.get(list));
            let changes = recent["query"]["recentchanges"].as_array()?;
            let change = changes.iter().find(|change| change["title"] == title)?;
            assert_eq!(change["user"], **user, "{recent}");
            Some(())
        });
    }
}

/// Pages run none, the schedule's command runs all. Edits add theirs behind their replies: the file
/// may be locked, and without jobs yet.
fn jobs_run(server: &Server, config: &str) {
    let waiting = || -> u64 {
        let counted = php_command("php")
            .arg("-r")
            .arg("$n = 0; foreach (glob('wiki/data/*jobqueue.sqlite') as $f) { $d = new SQLite3($f); $d->busyTimeout(10000); $n += $d->querySingle('SELECT COUNT(*) FROM job'); } echo $n;")
            .current_dir(server.site().folder())
            .output()
            .expect("it starts");
        let told = String::from_utf8_lossy(&counted.stdout).into_owned();
        told.parse().expect(&told)
    };
    wait_for("jobs that edits leave", || (waiting() > 0).then_some(()));
    let ran = server.steer(&["schedules", "-c", config, "run", "wiki"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_for("the jobs", || (waiting() == 0).then_some(()));
}

fn upload(server: &Server, admin: &mut Browser, name: &str) {
    let picture = std::fs::read("/usr/share/mediawiki/resources/assets/change-your-logo-icon.svg");
    let picture = picture.expect("MediaWiki is installed");
    // What looks like a picture by its name.
    let script = b"<?php echo 'it ', 'ran';".as_slice();
    let csrf = token(admin, "csrf")
        .replace("%2B", "+")
        .replace("%5C", "\\");
    let png = std::fs::read("/usr/share/mediawiki/resources/assets/wiki.png");
    let png = png.expect("MediaWiki is installed");
    for (ending, content, is_taken) in [
        (".png", png.as_slice(), true),
        (".svg", picture.as_slice(), false),
        (".php", script, false),
        ("-evil.png", script, false),
    ] {
        let name = format!("Icon-{name}{ending}");
        let fields = [
            ("action", "upload"),
            ("format", "json"),
            ("filename", name.as_str()),
            ("ignorewarnings", "1"),
            ("token", &csrf),
        ];
        let told = json(&admin.upload("/api.php", &fields, ("file", &name, "image/png", content)));
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
    let form = admin.get("/wiki/Special:Upload").text();
    let token = field(&form, "wpEditToken");
    let name = format!("Form-{name}.png");
    let fields = [
        ("wpEditToken", token.as_str()),
        ("title", "Special:Upload"),
        ("wpDestFile", &name),
        ("wpSourceType", "file"),
        ("wpIgnoreWarning", "1"),
        ("wpUpload", "Upload file"),
    ];
    let sent = admin.upload(
        "/index.php",
        &fields,
        ("wpUploadFile", &name, "image/png", &png),
    );
    let to = sent.header("location").unwrap_or_default();
    assert!(to.contains(&format!("File:{name}")), "{}", sent.text());
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
