//! What tests of TLS and HTTP/2 share: a site with certificates, curl, and frames byte by byte.

use std::process::{Command, Output};

use pronghorn_testkit::{Server, Site};

/// A self-signed certificate for these names, as `NAME.pem` and `NAME.key`.
pub(crate) fn certificate(site: &Site, name: &str, names: &[&str]) {
    let alternatives: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=test"])
        .arg("-addext")
        .arg(format!("subjectAltName={}", alternatives.join(",")))
        .arg("-keyout")
        .arg(site.path(&format!("{name}.key")))
        .arg("-out")
        .arg(site.path(&format!("{name}.pem")))
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
}

/// An application whose worker is one of `e2e/fixtures`, with TLS for `localhost` and HTTP/2
/// without it. `more` are keys of `http`, two spaces in.
pub(crate) fn site(fixture: &str, ssl: &str, more: &str) -> Site {
    let site = Site::new();
    certificate(&site, "localhost", &["localhost"]);
    site.config(&format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 2}}\n  http2: {{h2c: true}}\n  \
         ssl:\n    address: 127.0.0.1:0\n    cert: localhost.pem\n    key: localhost.key\n{ssl}{more}logs: {{level: debug}}\n",
        Site::fixture(fixture).display()
    ))
}

/// The port of the first listener with TLS.
pub(crate) fn port(server: &Server) -> u16 {
    let said = server.log();
    let (_, rest) = said.split_once("https://").expect("it serves TLS");
    let address = rest.split([' ', '\n']).next().unwrap_or_default();
    let (_, port) = address.rsplit_once(':').expect("an address has a port");
    port.parse().expect("a port is a number")
}

/// Runs curl in the site's folder, with `localhost.pem` as the one authority.
pub(crate) fn run_curl(server: &Server, arguments: &[&str]) -> Output {
    Command::new("curl")
        .current_dir(server.site().folder())
        .args([
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--max-time",
            "20",
        ])
        .args(arguments)
        .output()
        .expect("curl is installed")
}

/// What curl writes, which must succeed.
pub(crate) fn curl(server: &Server, arguments: &[&str]) -> String {
    let ran = run_curl(server, arguments);
    assert!(
        ran.status.success(),
        "{arguments:?}: {ran:?}\n{}",
        server.log()
    );
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// GETs a path with TLS.
pub(crate) fn get(server: &Server, path: &str, arguments: &[&str]) -> String {
    let url = format!("https://localhost:{}{path}", port(server));
    let authority = ["--ipv4", "--cacert", "localhost.pem"];
    curl(server, &[&authority[..], arguments, &[&url]].concat())
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("it is short")
        .to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
