//! Certificates of HTTP's clients: who is let in, and what applications of each kind are told.

use std::process::{Command, Output};

use pronghorn_testkit::{Certificates, Server, Site, wait_for};

use crate::ring::extension;
use crate::secure::port;

/// Shows what a script is told of the client's certificate.
const SCRIPT: &str = "<?php\n$told = array_filter($_SERVER, fn ($name) => str_contains($name, 'CLIENT_'), ARRAY_FILTER_USE_KEY);\n\
    ksort($told);\necho json_encode($told);\n";

fn site(certificates: &Certificates, keys: &str, more: &str) -> Site {
    let path = |name: &str| certificates.path(name).display().to_string();
    let php = format!("php -d extension={}", extension().display());
    Site::new()
        .file("public/index.php", SCRIPT)
        .file(
            "handler.php",
            &Site::sdk_worker(
                "$told = array_filter($request->attributes, fn ($name) => str_starts_with($name, 'SSL_'), ARRAY_FILTER_USE_KEY);\n\
                 ksort($told); return json_encode($told);",
            ),
        )
        .file(
            "front.php",
            &format!(
                "<?php require '{}'; Pronghorn\\serve(fn () => require __DIR__ . '/public/index.php');",
                Site::app("../../php/autoload.php").display()
            ),
        )
        .config(&format!(
            "version: '3'\nserver: {{command: '{php} handler.php'}}\nlogs: {{level: debug}}\nhttp:\n  \
             address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n  pools:\n    \
             front: {{command: '{php} front.php', num_workers: 1}}\n    \
             plain: {{command: 'php front.php', num_workers: 1}}\n    \
             classic: {{mode: classic, root: public, php: '{php}', num_workers: 1}}\n    \
             fastcgi: {{mode: fastcgi, root: public, num_workers: 1}}\n  \
             routes:\n    - {{host: front, pool: front}}\n    - {{host: plain, pool: plain}}\n    \
             - {{host: classic, pool: classic}}\n    - {{host: fastcgi, pool: fastcgi}}\n  \
             ssl:\n    address: 127.0.0.1:0\n    cert: {}\n    key: {}\n    root_ca: {}\n{keys}{more}",
            path("server.pem"),
            path("server.key"),
            path("ca.pem"),
        ))
}

fn ask(server: &Server, of: &Certificates, client: Option<&Certificates>, more: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        "20",
        "--cacert",
    ])
    .arg(of.path("ca.pem"));
    if let Some(client) = client {
        curl.arg("--cert").arg(client.path("client.pem"));
        curl.arg("--key").arg(client.path("client.key"));
    }
    curl.args(more)
        .arg(format!("https://127.0.0.1:{}/", port(server)))
        .output()
        .expect("curl is installed")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_kind_of_application_is_told_whose_certificate_it_is() {
    let certificates = Certificates::new();
    let others = Certificates::new();
    let keys = "    client_auth_type: verify_client_cert_if_given\n";
    let server = Server::start(site(&certificates, keys, ""));
    let pem = std::fs::read_to_string(certificates.path("client.pem")).expect("it was made");
    let forged = [
        "-H",
        "Client-Cert: :AAAA:",
        "-H",
        "SSL-CLIENT-VERIFY: SUCCESS",
    ];
    for host in ["default", "front", "plain", "classic", "fastcgi"] {
        for version in ["--http1.1", "--http2"] {
            let header = format!("Host: {host}");
            let more = [&[version, "-H", &header], &forged[..]].concat();
            let told = text(&ask(&server, &certificates, Some(&certificates), &more));
            let told: serde_json::Value = serde_json::from_str(&told).expect(host);
            let all = told.as_object().expect("variables");
            assert_eq!(
                told["SSL_CLIENT_VERIFY"], "SUCCESS",
                "{host} {version}: {told}"
            );
            assert_eq!(told["SSL_CLIENT_S_DN"], "CN=client", "{host} {version}");
            assert_eq!(told["SSL_CLIENT_I_DN"], "CN=ca", "{host} {version}");
            assert_eq!(told["SSL_CLIENT_CERT"], pem, "{host} {version}");
            assert!(!all.contains_key("HTTP_CLIENT_CERT"), "{told}");
            let nobody = text(&ask(&server, &certificates, None, &more));
            let nobody: serde_json::Value = serde_json::from_str(&nobody).expect(host);
            assert_eq!(
                nobody["SSL_CLIENT_VERIFY"], "NONE",
                "{host} {version}: {nobody}"
            );
            assert!(nobody.get("SSL_CLIENT_CERT").is_none(), "{nobody}");
        }
    }
    // A certificate that is given must be one of the authority's.
    assert!(
        !ask(&server, &certificates, Some(&others), &[])
            .status
            .success()
    );
    server.stop();
}

#[test]
fn who_has_no_certificate_or_a_revoked_one_is_not_let_in() {
    let certificates = Certificates::new();
    let openssl = |arguments: &str| {
        let ran = Command::new("openssl")
            .current_dir(certificates.path(""))
            .args(arguments.split(' '))
            .output()
            .expect("openssl is there");
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    };
    let settings = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=number\n\
                    default_md=sha256\ndefault_crl_days=2\n";
    for (name, content) in [("ca.cnf", settings), ("index.txt", ""), ("number", "01\n")] {
        std::fs::write(certificates.path(name), content).expect("the directory is there");
    }
    let list = "ca -config ca.cnf -keyfile ca.key -cert ca.pem -gencrl -out crl.pem";
    openssl(list);
    let keys = format!(
        "    client_auth_type: require_and_verify_client_cert\n    crl: {}\n",
        certificates.path("crl.pem").display()
    );
    let server = Server::start(site(&certificates, &keys, ""));
    let is_let_in =
        |client: Option<&Certificates>| ask(&server, &certificates, client, &[]).status.success();
    assert!(is_let_in(Some(&certificates)));
    assert!(!is_let_in(None));
    assert!(!is_let_in(Some(&Certificates::new())));
    // A session of before does not let a client in whose certificate was revoked meanwhile.
    openssl("ca -config ca.cnf -keyfile ca.key -cert ca.pem -revoke client.pem");
    openssl(list);
    server.steer(&["reload"]).assert_said(&["is applied"]);
    wait_for("the list to count", || {
        (!is_let_in(Some(&certificates))).then_some(())
    });
    // A list that can't be used changes nothing.
    std::fs::write(certificates.path("crl.pem"), "x").expect("it can be written");
    let failed = server.steer(&["reload"]);
    failed.assert_refused(&["there is no list of revoked certificates in", "crl.pem"]);
    assert!(!is_let_in(Some(&certificates)));
    server.stop();
}

#[test]
fn what_contradicts_client_certificates_is_refused() {
    let certificates = Certificates::new();
    for (keys, told) in [
        (
            "    client_auth_type: require\n",
            "`http.ssl.client_auth_type`",
        ),
        ("    crl: none.pem\n", "`http.ssl.crl` has no effect"),
        (
            "    client_auth_type: require_and_verify_client_cert\n    crl: none.pem\n",
            "cannot read",
        ),
    ] {
        Server::run(&site(&certificates, keys, ""), &["check"]).assert_said_with(2, &[told]);
    }
}
