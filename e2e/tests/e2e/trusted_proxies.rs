//! Who the client is behind the proxies of docs/reference/trusted-proxies.md and
//! docs/operations/behind-nginx.md: nginx and `HAProxy` themselves, and what others send. Clients
//! connect from an address that is not the proxy's.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Server, Site, free_address, wait_for};

use crate::nginx::Nginx;

/// A client that nobody trusts.
const CLIENT: &str = "127.0.0.77";

const LISTED: &str = "trusted_headers: [X-Forwarded-For, X-Forwarded-Proto]";

/// What a client sends so as to be somebody else, or to be served as if by TLS.
const FORGED: [&[&str]; 16] = [
    &["X-Forwarded-For: 6.6.6.6"],
    &["X-Forwarded-For: 127.0.0.1"],
    &["X-Forwarded-For: unknown"],
    &["X-Forwarded-For:;", "X-Real-IP: 6.6.6.6"],
    &["X-Forwarded-For: 6.6.6.6, 127.0.0.1"],
    &["X-Forwarded-For: 6.6.6.6,"],
    &["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 127.0.0.1"],
    &["X-Forwarded-Proto: https"],
    &["X-Forwarded-For: 127.0.0.77", "X-Forwarded-Proto: https"],
    &["X-Forwarded-Host: evil.example", "X-Forwarded-Port: 666"],
    &["X-Real-IP: 127.0.0.1"],
    &["Forwarded: for=9.9.9.9"],
    &["Forwarded: for=127.0.0.77;proto=https;host=evil.example"],
    &["Forwarded: for=\"_hidden"],
    &["True-Client-IP: 6.6.6.6", "CF-Connecting-IP: 6.6.6.6"],
    &["X_Forwarded_For: 6.6.6.6"],
];

#[test]
fn behind_the_nginx_of_the_page_no_client_chooses_who_it_is() {
    for listed in ["", LISTED] {
        let server = trusting(listed);
        for block in [0, 1] {
            let address = free_address();
            let nginx = Nginx::start(
                server.site(),
                &nginx_block(&server, address, block),
                address,
            );
            holds(
                address,
                &|seen| seen == REAL,
                &format!("block {block}, {listed}"),
            );
            drop(nginx);
        }
        server.stop();
    }
}

/// As our page had it before, and as many others have it: nginx sets nothing but `X-Real-IP`, and
/// passes on the rest.
#[test]
fn behind_an_nginx_that_sets_only_x_real_ip_nobody_is_somebody_else() {
    for listed in ["", "trusted_headers: [X-Real-IP]"] {
        let server = trusting(listed);
        let address = free_address();
        let block = format!(
            "server {{ listen {address}; location / {{ proxy_pass http://{}; proxy_set_header Host $host;\n\
             proxy_set_header X-Real-IP $remote_addr; }} }}",
            server.address()
        );
        let nginx = Nginx::start(server.site(), &block, address);
        let allowed = |seen: &str| {
            let is_refused = listed.is_empty() && seen == "400 Bad Request";
            // Nothing can be said against one that names itself; see the reference on naming what
            // the proxy sets.
            let names_itself = listed.is_empty() && seen == "127.0.0.77 https://test/show";
            seen == REAL || is_refused || names_itself
        };
        holds(address, &allowed, listed);
        assert_eq!(ask(address, &["X-Forwarded-Proto: https"]), REAL);
        drop(nginx);
        server.stop();
    }
}

#[test]
fn behind_the_haproxy_of_the_page_no_client_chooses_who_it_is() {
    let page = page("reference/trusted-proxies.md");
    let (_, section) = page.split_once("### HAProxy").expect("the section");
    let block = fenced(section, "haproxy");
    for (protocol, keys) in [("", LISTED), (" proto h2", LISTED), ("", "")] {
        let server = trusting(keys);
        let address = free_address();
        let text = block
            .replace("bind :80", &format!("bind {address}"))
            .replace("127.0.0.1:8080", &format!("{}{protocol}", server.address()));
        let haproxy = HaProxy::start(server.site(), &text, address);
        // By default an `X-Real-IP` that contradicts the list is refused.
        let is_usual = keys.is_empty();
        let allowed = |seen: &str| seen == REAL || is_usual && seen == "400 Bad Request";
        holds(address, &allowed, &format!("{protocol} {keys}"));
        drop(haproxy);
        server.stop();
    }
}

/// What these send for a client at 192.0.2.1 that came by TLS and has forged what they pass on,
/// with the keys of the page.
#[test]
fn what_other_proxies_send_is_read_as_the_page_says() {
    let page = page("reference/trusted-proxies.md");
    let forged =
        "Forwarded: for=6.6.6.6;proto=http\r\nX-Real-Ip: 6.6.6.6\r\nTrue-Client-Ip: 6.6.6.6\r\n";
    for (proxy, sends, uri) in [
        (
            "Caddy",
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: test\r\n",
            "https://test/show",
        ),
        (
            "Traefik",
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 443\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Server: traefik\r\n",
            "https://shop.example/show",
        ),
        (
            "Traefik",
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: shop.example:8443\r\nX-Forwarded-Port: 8443\r\n\
             X-Forwarded-Proto: wss\r\n",
            "https://shop.example:8443/show",
        ),
        (
            "AWS",
            "X-Forwarded-For: 6.6.6.6, 192.0.2.1:4711\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n\
             X-Amzn-Trace-Id: Root=1-67891233-abcdef\r\nX-Forwarded-Host: evil.example\r\n",
            "https://test/show",
        ),
        (
            "Cloudflare",
            "CF-Connecting-IP: 192.0.2.1\r\nX-Forwarded-For: 6.6.6.6,192.0.2.1\r\nX-Forwarded-Proto: https\r\n\
             CF-Ray: 230b030023ae2822-SJC\r\nCF-Visitor: {\"scheme\":\"https\"}\r\n",
            "https://test/show",
        ),
    ] {
        let (_, section) = page.split_once(&format!("### {proxy}")).expect(proxy);
        let keys = fenced(section, "yaml");
        let (_, listed) = keys.split_once("trusted_headers:").expect(proxy);
        let server = trusting(&format!("trusted_headers:{}", listed.trim_end()));
        let mut connection = server.connect();
        connection.request("GET", "/show", &format!("{sends}{forged}"));
        let shown = connection.response().text();
        assert!(
            shown.contains(r#""remote":"192.0.2.1""#),
            "{proxy}: {shown}"
        );
        assert!(
            shown.contains(&format!(r#""uri":"{uri}""#)),
            "{proxy}: {shown}"
        );
        server.stop();
    }
}

#[test]
fn a_doubtful_client_gets_400_and_a_record_says_why() {
    let server = trusting("access_log: {format: '{ip} {status}', output: access.log}");
    let mut connection = server.connect();
    connection.request(
        "GET",
        "/show",
        "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 192.0.2.1\r\n",
    );
    assert_eq!(connection.response().status, 400);
    server.logged(&[
        "the client's address is unclear",
        "X-Forwarded-For",
        "trusted_headers",
    ]);
    // The connection carries other clients.
    connection.request("GET", "/show", "X-Forwarded-For: 192.0.2.1\r\n");
    assert_eq!(connection.response().status, 200);
    let site = server.into_site();
    assert_eq!(site.read("access.log"), "127.0.0.1 400\n192.0.2.1 200\n");
}

/// What PHP sees of the client without a forged header.
const REAL: &str = "127.0.0.77 http://test/show";

fn trusting(keys: &str) -> Server {
    Server::start(Site::new().config(&format!(
        "version: '3'\nserver: {{command: php {}}}\nhttp:\n  address: 127.0.0.1:0\n  http2: {{h2c: true}}\n  \
         pool: {{num_workers: 1}}\n  trusted_subnets: [127.0.0.1]\n  {keys}\n",
        Site::fixture("app.php").display()
    )))
}

/// Tries all that is forged against the proxy at this address.
fn holds(address: SocketAddr, allowed: &dyn Fn(&str) -> bool, what: &str) {
    assert_eq!(ask(address, &[]), REAL, "{what}");
    for forged in FORGED {
        let seen = ask(address, forged);
        assert!(allowed(&seen), "{what}: with {forged:?} it is {seen}");
    }
}

/// Address and URI as PHP sees them, or the answer that stands for them.
fn ask(address: SocketAddr, fields: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--max-time",
        "20",
        "--interface",
        CLIENT,
        "-H",
        "Host: test",
    ]);
    for field in fields {
        curl.args(["-H", field]);
    }
    let output = curl.arg(format!("http://{address}/show")).output();
    let output = output.expect("curl is installed (scripts/need tests)");
    let text = String::from_utf8_lossy(&output.stdout);
    let part = |name: &str| {
        Some(
            text.split_once(&format!("\"{name}\":\""))?
                .1
                .split_once('"')?
                .0,
        )
    };
    match (part("remote"), part("uri")) {
        (Some(remote), Some(uri)) => format!("{remote} {uri}"),
        _ => text.trim().to_owned(),
    }
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    std::fs::read_to_string(path).expect(name)
}

/// The first block of this language.
fn fenced(text: &str, language: &str) -> String {
    let (_, block) = text
        .split_once(&format!("```{language}\n"))
        .expect("the block begins");
    block
        .split_once("```")
        .expect("the block ends")
        .0
        .to_owned()
}

fn nginx_block(server: &Server, address: SocketAddr, block: usize) -> String {
    let page = page("operations/behind-nginx.md");
    let text = page
        .replace("listen 80;", &format!("listen {address};"))
        .replace("127.0.0.1:8080", &server.address().to_string())
        .replace("/srv/app", &server.site().folder().display().to_string());
    let from = text
        .split("```nginx\n")
        .nth(block + 1)
        .expect("the block begins");
    from.split_once("```").expect("the block ends").0.to_owned()
}

/// A running `HAProxy`; ends with this value.
pub(crate) struct HaProxy(Child);

impl HaProxy {
    pub(crate) fn start(site: &Site, text: &str, address: SocketAddr) -> Self {
        let around = "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n";
        site.write("haproxy.cfg", &format!("{around}{text}"));
        let process = Command::new("/usr/sbin/haproxy")
            .args(["-db", "-q", "-f"])
            .arg(site.path("haproxy.cfg"))
            .stdin(Stdio::null())
            .spawn()
            .expect("haproxy is installed (scripts/need tests)");
        let haproxy = Self(process);
        wait_for("haproxy to listen", || {
            std::net::TcpStream::connect(address).ok().map(drop)
        });
        haproxy
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        _ = self.0.kill(); // it may have ended
        _ = self.0.wait(); // as above
    }
}
