//! Certificates from Pebble, the authority that Let's Encrypt tests clients with.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use pronghorn_testkit::{Certificates, Engine, Server, Site, free_address, wait_for};

use crate::{run, tool};

/// An authority, and the name server that it asks: every name is this machine's.
struct Pebble {
    authority: Engine,
    _names: Engine,
    /// Where records of the name server are set.
    records: SocketAddr,
    certificates: Certificates,
    management: SocketAddr,
}

/// How an authority is set up.
struct Setup<'a> {
    /// Of a certificate, in seconds.
    life: u32,
    clear: SocketAddr,
    tls: SocketAddr,
    environment: &'a [(&'static str, &'a str)],
    /// More keys of its configuration.
    more: serde_json::Value,
}

impl Pebble {
    fn start(setup: &Setup<'_>) -> Self {
        let records = free_address();
        let names = Engine::start(tool("pebble-challtestsrv"), |port| {
            let at = format!("127.0.0.1:{port}");
            let management = records.to_string();
            let all = ["-dnsserver", &at, "-management", &management];
            let off = [
                "-defaultIPv6",
                "",
                "-doh",
                "",
                "-http01",
                "",
                "-https01",
                "",
            ];
            let off = off.iter().chain(&["-tlsalpn01", ""]);
            all.iter().chain(off).map(|it| (*it).to_owned()).collect()
        });
        let certificates = Certificates::new();
        let management = free_address();
        let mut authority = Engine::new(tool("pebble"));
        let mut config = serde_json::json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{}", authority.port()),
            "managementListenAddress": management.to_string(),
            "certificate": certificates.path("server.pem"),
            "privateKey": certificates.path("server.key"),
            "httpPort": setup.clear.port(),
            "tlsPort": setup.tls.port(),
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "d", "validityPeriod": setup.life}},
        }});
        for (name, value) in setup.more.as_object().into_iter().flatten() {
            config["pebble"][name] = value.clone();
        }
        let file = authority.folder().join("pebble.json");
        std::fs::write(&file, config.to_string()).expect("the folder is there");
        authority.set_arguments(vec![
            "-config".to_owned(),
            file.to_string_lossy().into_owned(),
            "-dnsserver".to_owned(),
            format!("127.0.0.1:{}", names.port()),
        ]);
        let mut environment = vec![("PEBBLE_VA_NOSLEEP", "1".to_owned())];
        for (name, value) in setup.environment {
            environment.push((name, (*value).to_owned()));
        }
        authority.set_environment(environment);
        authority.restart();
        for at in [management, ([127, 0, 0, 1], authority.port()).into()] {
            wait_for("Pebble to listen", || TcpStream::connect(at).ok());
        }
        Self {
            authority,
            _names: names,
            records,
            certificates,
            management,
        }
    }

    /// What names it in `http.ssl.acme`.
    fn keys(&self) -> String {
        format!(
            "directory: '{}', root_ca: '{}'",
            self.directory(),
            self.ca()
        )
    }

    fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.authority.port())
    }

    fn ca(&self) -> String {
        self.certificates.path("ca.pem").display().to_string()
    }

    /// The root of what it issues, as a file of the site.
    fn write_root(&self, site: &Site) {
        let url = format!("https://{}/roots/0", self.management);
        let (said, output) = run(Command::new("curl").args(["-ks", &url]));
        assert!(output.status.success(), "{said}");
        site.write("root.pem", &said);
    }
}

fn site(clear: SocketAddr, tls: SocketAddr, acme: &str) -> Site {
    Site::new()
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n  address: '{clear}'\n  \
             pool: {{num_workers: 1}}\n  \
             ssl:\n    address: '{tls}'\n    redirect: true\n    acme: {{{acme}}}\n"
        ))
        .file("worker.php", &Site::sdk_worker("return 'Hello';"))
}

/// What a client gets that trusts the authority alone.
fn get(server: &Server, name: &str, tls: SocketAddr) -> Option<String> {
    let at = format!("{name}:{}", tls.port());
    let root = server.site().path("root.pem");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "--max-time", "10", "--cacert"]);
    curl.arg(root)
        .args(["--resolve", &format!("{at}:127.0.0.1")]);
    let (said, output) = run(curl.arg(format!("https://{at}/")));
    output.status.success().then_some(said)
}

/// The number of the certificate that clients get.
fn serial(name: &str, tls: SocketAddr) -> Option<String> {
    let script = format!(
        "openssl s_client -connect {tls} -servername {name} </dev/null 2>/dev/null \
         | openssl x509 -noout -serial"
    );
    let (said, output) = run(Command::new("sh").args(["-c", &script]));
    output.status.success().then_some(said)
}

#[test]
fn a_certificate_is_issued_kept_and_renewed() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 30,
        clear,
        tls,
        environment: &[("PEBBLE_WFE_NONCEREJECT", "50")],
        more: serde_json::Value::Null,
    };
    let pebble = Pebble::start(&setup);
    let acme = format!("domains: [a.example.com], {}", pebble.keys());
    let site = site(clear, tls, &acme);
    pebble.write_root(&site);
    let server = Server::start(site);
    server.logged(&["there is no certificate yet", "a.example.com"]);
    let said = wait_for("a certificate", || get(&server, "a.example.com", tls));
    assert_eq!(said, "Hello");
    let first = serial("a.example.com", tls);
    wait_for("another certificate", || {
        let now = serial("a.example.com", tls);
        (now.is_some() && now != first).then_some(())
    });
    let kept = serial("a.example.com", tls);
    // What has no token goes to the application, which sends it to TLS.
    let at = format!("http://{clear}/.well-known/acme-challenge/other");
    let (said, _) = run(Command::new("curl").args(["-sI", &at]));
    assert!(said.contains("308"), "{said}");
    let log = server.log();
    assert!(log.contains("a new certificate is in use"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    let site = server.into_site();
    // Without the authority, the certificate is there from the start.
    drop(pebble);
    let server = Server::start(site);
    assert_eq!(serial("a.example.com", tls), kept);
    server.stop();
}

#[test]
fn names_are_shown_by_tls_alone_where_no_port_is_open_without_it() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 7_776_000,
        clear,
        tls,
        environment: &[],
        more: serde_json::Value::Null,
    };
    let pebble = Pebble::start(&setup);
    let acme = format!(
        "domains: [a.example.com, b.example.com], challenge_type: tlsalpn-01, {}",
        pebble.keys()
    );
    let site = site(clear, tls, &acme);
    pebble.write_root(&site);
    let server = Server::start(site);
    for name in ["a.example.com", "b.example.com"] {
        let said = wait_for("a certificate", || get(&server, name, tls));
        assert_eq!(said, "Hello");
    }
    server.stop();
}

#[test]
fn an_authority_that_hangs_up_is_passed_over_and_accounts_and_profiles_are_named() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 7_776_000,
        clear,
        tls,
        environment: &[],
        more: serde_json::json!({
            "profiles": {
                "default": {"description": "d", "validityPeriod": 7_776_000},
                "shortlived": {"description": "s", "validityPeriod": 518_400},
            },
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": {
                "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W",
            },
        }),
    };
    let pebble = Pebble::start(&setup);
    let nobody = free_address();
    let acme = format!(
        "domains: [a.example.com], profile: shortlived, {}, \
         eab: {{kid: kid-1, hmac_key: zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W}}",
        pebble
            .keys()
            .replace(
                "directory: ",
                &format!("directory: ['https://{nobody}/dir', ")
            )
            .replacen("/dir', root", "/dir'], root", 1)
    );
    let site = site(clear, tls, &acme);
    pebble.write_root(&site);
    let server = Server::start(site);
    let said = wait_for("a certificate", || get(&server, "a.example.com", tls));
    assert_eq!(said, "Hello");
    server.logged(&["the next authority is asked"]);
    let log = server.logged(&["a new certificate is in use"]);
    assert!(log.contains("\"days\":5"), "{log}");
    assert!(!log.contains("zWNDZM6e"), "{log}");
    server.stop();
}

#[test]
fn a_failure_is_told_with_its_reason_and_the_server_goes_on() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 7_776_000,
        clear,
        tls,
        environment: &[],
        more: serde_json::json!({"domainBlocklist": ["blocked.example.com"]}),
    };
    let pebble = Pebble::start(&setup);
    let acme = format!(
        "domains: [blocked.example.com, a.example.com], {}",
        pebble.keys()
    );
    let site = site(clear, tls, &acme);
    pebble.write_root(&site);
    let server = Server::start(site);
    server.logged(&["no certificate was issued", "blocked.example.com"]);
    let said = wait_for("the other certificate", || {
        get(&server, "a.example.com", tls)
    });
    assert_eq!(said, "Hello");
    // Another start within the pause orders nothing.
    let site = server.into_site();
    let server = Server::start(site);
    assert_eq!(get(&server, "a.example.com", tls).as_deref(), Some("Hello"));
    let log = server.log();
    assert!(!log.contains("no certificate was issued"), "{log}");
    server.stop();
}

#[test]
fn a_site_with_a_domain_is_one_command() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 7_776_000,
        clear,
        tls,
        environment: &[],
        more: serde_json::Value::Null,
    };
    let pebble = Pebble::start(&setup);
    let site = Site::new().file("worker.php", &Site::sdk_worker("return 'Hello';"));
    pebble.write_root(&site);
    let keys = [
        format!("http.address={clear}"),
        format!("http.ssl.address={tls}"),
        format!("http.ssl.acme.directory={}", pebble.directory()),
        format!("http.ssl.acme.root_ca={}", pebble.ca()),
    ];
    let mut arguments = vec!["serve", "worker.php", "--domain", "a.example.com"];
    for key in &keys {
        arguments.extend(["-o", key]);
    }
    let server = Server::start_with(site, &arguments);
    let said = wait_for("a certificate", || get(&server, "a.example.com", tls));
    assert_eq!(said, "Hello");
    let at = format!("http://{clear}/");
    let (said, _) = run(Command::new("curl").args(["-sI", &at]));
    assert!(said.contains("308"), "{said}");
    server.stop();
}

#[test]
fn all_names_of_a_domain_have_a_certificate_by_one_record_in_dns() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 7_776_000,
        clear,
        tls,
        environment: &[],
        more: serde_json::Value::Null,
    };
    let pebble = Pebble::start(&setup);
    let acme = format!(
        "domains: ['*.example.com'], challenge_type: dns-persist-01, {}",
        pebble.keys()
    );
    let metrics = free_address();
    let site = site(clear, tls, &acme);
    let config = site.read(".rr.yaml");
    site.write(
        ".rr.yaml",
        &format!("{config}metrics: {{address: '{metrics}'}}\n"),
    );
    pebble.write_root(&site);
    let server = Server::start(site);
    let log = server.logged(&["found no record for `*.example.com`"]);
    let (_, record) = log.split_once(" IN TXT \"").expect("the record is told");
    let (value, _) = record.split_once('"').expect("it ends");
    assert!(value.ends_with("; policy=wildcard"), "{value}");
    let series = |name: &str| {
        let url = format!("http://{metrics}/metrics");
        let (said, _) = run(Command::new("curl").args(["-s", &url]));
        let begin = format!("pronghorn_http_certificate_{name}{{name=\"*.example.com\"}} ");
        let found = said.lines().find_map(|line| line.strip_prefix(&begin));
        let number: f64 = found.expect("it is counted").parse().expect("a number");
        number
    };
    assert!(series("failures_total") >= 1.0);
    assert!(series("expiry_timestamp_seconds") < 1.0);
    let set = serde_json::json!({"host": "_validation-persist.example.com.", "value": value});
    let url = format!("http://{}/set-txt", pebble.records);
    let (said, output) = run(Command::new("curl").args(["-sS", "-d", &set.to_string(), &url]));
    assert!(output.status.success(), "{said}");
    server.steer(&["reload"]);
    for name in ["a.example.com", "b.example.com"] {
        let said = wait_for("a certificate", || get(&server, name, tls));
        assert_eq!(said, "Hello");
    }
    assert!(series("expiry_timestamp_seconds") > 1e9);
    server.stop();
}

#[test]
fn after_an_upgrade_the_next_process_renews() {
    let (clear, tls) = (free_address(), free_address());
    let setup = Setup {
        life: 30,
        clear,
        tls,
        environment: &[],
        more: serde_json::Value::Null,
    };
    let pebble = Pebble::start(&setup);
    let acme = format!("domains: [a.example.com], {}", pebble.keys());
    let site = site(clear, tls, &acme);
    pebble.write_root(&site);
    let mut server = Server::start(site);
    wait_for("a certificate", || get(&server, "a.example.com", tls));
    server.upgrade();
    let before = serial("a.example.com", tls);
    wait_for("another certificate", || {
        let now = serial("a.example.com", tls);
        (now.is_some() && now != before).then_some(())
    });
    server.stop();
}
