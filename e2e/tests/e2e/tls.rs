//! TLS: certificates, their renewal, redirects, sessions; places to listen.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use pronghorn_testkit::{Connection, PATIENCE, Server, Site, free_address, wait_for};
use rustix::process::Signal;

use crate::secure::{certificate, curl, get, port, run_curl, site};

#[test]
fn php_sees_the_same_in_every_protocol() {
    let server = Server::start(site("app.php", "", ""));
    let fields = [
        "-H",
        "cookie: a=1",
        "-H",
        "cookie: b=2",
        "-H",
        "x-a:  1",
        "-A",
        "test",
    ];
    let show = |protocol: &str, url: &str| {
        let all = [
            &fields[..],
            &["--ipv4", "--cacert", "localhost.pem", protocol, url],
        ]
        .concat();
        let shown = curl(&server, &all);
        let mut shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        // In HTTP/1.1 a client may send it twice, which HTTP/2 has a rule for.
        let headers = shown["headers"].as_object_mut().unwrap();
        let cookies = headers.remove("cookie").unwrap();
        let cookies: Vec<&str> = cookies
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c.as_str().unwrap())
            .collect();
        assert_eq!(cookies.join("; "), "a=1; b=2");
        shown
    };
    let secure = format!("https://localhost:{}/show?x=%20y", port(&server));
    let clear = format!("http://localhost:{}/show?x=%20y", server.address().port());
    let expected = show("--http1.1", &secure);
    assert_eq!(
        (&expected["protocol"], &expected["uri"]),
        (&"HTTP/1.1".into(), &secure.as_str().into())
    );
    assert_eq!(expected["remote"], "127.0.0.1");
    for (protocol, url, version) in [
        ("--http2", &secure, "HTTP/2.0"),
        ("--http2-prior-knowledge", &clear, "HTTP/2.0"),
        ("--http1.1", &clear, "HTTP/1.1"),
    ] {
        let mut shown = show(protocol, url);
        assert_eq!(shown["protocol"], version);
        shown["protocol"] = "HTTP/1.1".into();
        let text = shown.to_string().replace("http:", "https:");
        let text = text.replace(
            &format!("localhost:{}", server.address().port()),
            &format!("localhost:{}", port(&server)),
        );
        assert_eq!(text, expected.to_string(), "{protocol} {url}");
    }
    server.stop();
}

#[test]
fn a_client_gets_the_certificate_of_the_name_it_asks_for_and_the_route_of_its_host() {
    let more = "    certificates:\n    - {cert: shop.pem, key: shop.key}\n    - {cert: all.pem, key: all.key}\n";
    let routes = "  pools: {shop: {command: php shop.php, num_workers: 1}}\n  routes: [{host: shop.example, pool: shop}]\n";
    let site = site("app.php", more, routes).file("shop.php", &Site::sdk_worker("return 'shop';"));
    certificate(&site, "shop", &["shop.example"]);
    certificate(&site, "all", &["*.all.example"]);
    let server = Server::start(site);
    let port = port(&server);
    let ask = |name: &str, authority: &str| {
        let url = format!("https://{name}:{port}/");
        let resolve = format!("{name}:{port}:127.0.0.1");
        let ran = run_curl(
            &server,
            &["--cacert", authority, "--resolve", &resolve, &url],
        );
        (
            ran.status.code(),
            String::from_utf8_lossy(&ran.stdout).into_owned(),
        )
    };
    assert_eq!(
        ask("shop.example", "shop.pem"),
        (Some(0), "shop".to_owned())
    );
    assert_eq!(
        ask("SHOP.example", "shop.pem"),
        (Some(0), "shop".to_owned())
    );
    assert_eq!(
        ask("a.all.example", "all.pem"),
        (Some(0), "Hello".to_owned())
    );
    assert_eq!(ask("localhost", "localhost.pem").0, Some(0));
    const WRONG: Option<i32> = Some(60);
    assert_eq!(
        ask("a.b.all.example", "all.pem").0,
        WRONG,
        "the star stands for one label"
    );
    assert_eq!(
        ask("other.example", "localhost.pem").0,
        WRONG,
        "the first one is for all other names"
    );
    server.stop();
}

#[test]
fn renewed_files_are_used_and_broken_ones_are_not() {
    let server = Server::start(site("app.php", "", ""));
    let site = server.site();
    let serial = || {
        let asked = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                &format!("127.0.0.1:{}", port(&server)),
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&asked.stdout).into_owned();
        let (_, rest) = shown
            .split_once("-----BEGIN CERTIFICATE-----")
            .expect("a certificate");
        rest.split("-----END")
            .next()
            .unwrap()
            .replace(char::is_whitespace, "")
    };
    let file = |name| {
        let text = site.read(name);
        let (_, rest) = text.split_once("-----BEGIN CERTIFICATE-----").unwrap();
        rest.split("-----END")
            .next()
            .unwrap()
            .replace(char::is_whitespace, "")
    };
    assert_eq!(serial(), file("localhost.pem"));

    // Nobody says so: the files are looked at.
    certificate(site, "next", &["localhost"]);
    fs::rename(site.path("next.key"), site.path("localhost.key")).unwrap();
    fs::rename(site.path("next.pem"), site.path("localhost.pem")).unwrap();
    let next = file("localhost.pem");
    wait_for("the renewed certificate", || {
        (serial() == next).then_some(())
    });
    server.logged(&["the certificate is renewed", "localhost.pem"]);

    // A pair that does not belong together changes nothing.
    certificate(site, "other", &["localhost"]);
    fs::rename(site.path("other.pem"), site.path("localhost.pem")).unwrap();
    server.signal(Signal::HUP);
    server.logged(&[
        "ERROR",
        "nothing has changed; the old certificates stay in use",
        "is not that of the certificate in",
    ]);
    // Nor does a command that says so, though the files are the same as a moment ago.
    let failed = server.steer(&["reload"]);
    failed.assert_refused(&["the reload failed"]);
    assert_eq!(serial(), next);

    // SIGHUP looks at once.
    fs::rename(site.path("other.key"), site.path("localhost.key")).unwrap();
    server.signal(Signal::HUP);
    let other = file("localhost.pem");
    wait_for("the other certificate", || {
        (serial() == other).then_some(())
    });

    // No line of a key is in the log.
    let (log, key) = (server.log(), site.read("localhost.key"));
    let lines: Vec<&str> = key.lines().filter(|line| !line.starts_with("--")).collect();
    assert!(!lines.is_empty() && !lines.iter().any(|line| log.contains(line)));
    server.stop();
}

#[test]
fn other_certificates_are_taken_by_a_reload() {
    let site = site("app.php", "", "");
    certificate(&site, "other", &["other.example"]);
    let server = Server::start(site);
    let url = format!("https://other.example:{}/", port(&server));
    let resolve = format!("other.example:{}:127.0.0.1", port(&server));
    let ask = || {
        run_curl(
            &server,
            &["--cacert", "other.pem", "--resolve", &resolve, &url],
        )
        .status
        .success()
    };
    assert!(!ask());
    server.site().change_config(
        "key: localhost.key\n",
        "key: localhost.key\n    certificates: [{cert: other.pem, key: other.key}]\n    hsts: {max_age: 1h}\n",
    );
    server.signal(Signal::HUP);
    server.logged(&["new certificates are in use"]);
    assert!(ask());
    let reply = get(&server, "/", &["--include"]);
    assert!(
        reply.contains("max-age=3600") && reply.ends_with("Hello"),
        "{reply}"
    );
    server.stop();
}

#[test]
fn without_tls_clients_are_sent_to_it_and_with_it_told_to_stay() {
    let more = "  listen: [{address: 'unix://site.sock', mode: '0600'}]
  access_log: {format: '{status} {target} {scheme}', output: access.log}
";
    let server = Server::start(site(
        "app.php",
        "    redirect: true\n    hsts: {max_age: 1h, include_subdomains: true}\n",
        more,
    ));
    let reply = server.get("/a%20b?x=1");
    let expected = format!("https://test:{}/a%20b?x=1", port(&server));
    assert_eq!(
        (reply.status, reply.header("location")),
        (308, Some(expected.as_str()))
    );
    assert_eq!(
        reply.header("strict-transport-security"),
        None,
        "without TLS it means nothing"
    );
    let posted = server.post("/x", "text/plain", "body");
    assert_eq!(posted.status, 308);
    for protocol in ["--http1.1", "--http2"] {
        let head = get(&server, "/", &["--head", protocol]).to_lowercase();
        assert!(
            head.contains("strict-transport-security: max-age=3600; includesubdomains\r\n"),
            "{head}"
        );
    }
    let url = format!("http://127.0.0.1:{}/", server.address().port());
    let followed = curl(&server, &["--location", "--insecure", &url]);
    assert_eq!(followed, "Hello");
    // Whoever comes by a unix socket is a proxy.
    assert_eq!(
        curl(&server, &["--unix-socket", "site.sock", "http://test/"]),
        "Hello"
    );
    let lines = server.into_site().read("access.log");
    assert!(
        lines.starts_with("308 /a%20b?x=1 http\n308 /x http\n200 / https\n"),
        "{lines}"
    );
}

#[test]
fn who_came_to_a_trusted_proxy_by_tls_is_not_sent_there_again() {
    let server = Server::start(site(
        "app.php",
        "    redirect: true\n    hsts: {max_age: 1h}\n",
        "  trusted_subnets: [127.0.0.0/8]\n",
    ));
    for (scheme, status, hsts) in [("https", 200, Some("max-age=3600")), ("http", 308, None)] {
        let mut connection = server.connect();
        let told = format!("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: {scheme}\r\n");
        connection.request("GET", "/", &told);
        let answer = connection.response();
        let said = answer.header("strict-transport-security");
        assert_eq!((answer.status, said), (status, hsts), "{scheme}");
    }
    server.stop();
}

/// A browser opens connections that it may need, a monitor to see whether somebody listens.
#[test]
fn who_says_nothing_does_not_hold_up_a_stop() {
    let server = Server::start(site("app.php", "", ""));
    let address = ("127.0.0.1", port(&server));
    let silent = TcpStream::connect(address).unwrap();
    let mut begun = TcpStream::connect(address).unwrap();
    begun.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    let mut without = server.connect();
    without.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(get(&server, "/", &[]), "Hello");
    let start = SystemTime::now();
    server.stop();
    let took = start.elapsed().unwrap();
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop((silent, begun));
}

#[test]
fn a_session_is_resumed_on_any_thread() {
    let server = Server::start(site("app.php", "", "  threads: 2\n"));
    let connect = format!("127.0.0.1:{}", port(&server));
    let session = server.site().path("session");
    for version in ["-tls1_2", "-tls1_3"] {
        let ask = |option: &str| {
            let mut asking = Command::new("openssl")
                .args(["s_client", version, "-connect", &connect, option])
                .arg(&session)
                .args(["-ign_eof"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            asking.stdin.take().unwrap().write_all(request).unwrap();
            let said = asking.wait_with_output().unwrap();
            String::from_utf8_lossy(&said.stdout).into_owned()
        };
        assert!(ask("-sess_out").contains("\nNew, TLS"));
        // The kernel picks the thread by the client's port: some of these come to the other one.
        for _ in 0..8 {
            let said = ask("-sess_in");
            assert!(said.contains("\nReused, TLS"), "{version}: {said}");
            assert!(said.contains("Hello"), "{version}");
        }
    }
    server.stop();
}

#[test]
fn a_unix_socket_has_its_mode_its_client_no_address_and_nothing_is_left_of_it() {
    let listen = "  listen: [{address: 'unix://run/site.sock', mode: '0666'}]\n";
    let server = Server::start(site("app.php", "", listen));
    let path = server.site().path("run/site.sock");
    let found = fs::metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o666);
    let shown = curl(
        &server,
        &["--unix-socket", "run/site.sock", "http://test/show"],
    );
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["remote"], &shown["uri"]),
        (&"unix:".into(), &"http://test/show".into())
    );
    server.logged(&["http log", "\"remote_address\":\"unix:\""]);
    let again = curl(
        &server,
        &[
            "--http2-prior-knowledge",
            "--unix-socket",
            "run/site.sock",
            "http://test/",
        ],
    );
    assert_eq!(again, "Hello");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn an_address_may_have_a_scheme_as_in_roadrunner() {
    let site = |http: &str| {
        Site::new()
            .file("worker.php", &Site::sdk_worker("return 'Hello';"))
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\nhttp: {{{http}, pool: {{num_workers: 1}}}}\n"
            ))
    };
    let server = Server::start(site("address: 'tcp://127.0.0.1:0'"));
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
    let server = Server::start(site(
        "address: 'unix://site.sock', listen: [{address: 'tcp://127.0.0.1:0'}]",
    ));
    assert_eq!(
        curl(&server, &["--unix-socket", "site.sock", "http://test/"]),
        "Hello"
    );
    server.stop();
}

#[test]
fn a_unix_socket_outlives_an_upgrade() {
    let listen = "  listen: [{address: 'unix://site.sock', mode: '0666'}]\n";
    let mut server = Server::start(site("app.php", "", listen));
    let path = server.site().path("site.sock");
    let mut waiting = UnixStream::connect(&path).unwrap();
    server.upgrade();
    assert!(path.exists(), "it belongs to the new process");
    assert_eq!(
        curl(&server, &["--unix-socket", "site.sock", "http://test/"]),
        "Hello"
    );
    assert_eq!(get(&server, "/", &[]), "Hello");
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    _ = waiting.read(&mut [0; 1]); // it was closed, not left hanging
    server.stop();
    assert!(!path.exists());
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_at_the_start() {
    let cases: &[(&str, &[&str])] = &[
        (
            "rm localhost.pem",
            &[
                "TLS needs a certificate",
                "cannot read",
                "localhost.pem",
                "No such file",
            ],
        ),
        (
            "echo hello > localhost.pem",
            &["there is no certificate in", "localhost.pem", "PEM"],
        ),
        (
            "echo hello > localhost.key",
            &["there is no private key in", "localhost.key"],
        ),
        (
            "openssl pkey -in localhost.key -aes256 -passout pass:hush -out new && mv new localhost.key",
            &["has a passphrase", "openssl pkey"],
        ),
        (
            "openssl genrsa -traditional -out localhost.key 1024",
            &[
                "localhost.key` is an RSA key of 1024 bits, and keys of less than 2048 are not taken",
                "hint: `openssl genpkey -algorithm EC",
            ],
        ),
        (
            "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out localhost.key",
            &["is an RSA key of 1024 bits"],
        ),
        (
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1 -out localhost.key",
            &["is a key on secp256k1, and browsers know P-256"],
        ),
        (
            "openssl ecparam -name secp256k1 -genkey -noout -out localhost.key",
            &["is a key on secp256k1"],
        ),
        (
            "openssl ecparam -name brainpoolP256r1 -genkey -out localhost.key",
            &["is a key on brainpoolP256r1"],
        ),
        (
            "openssl genpkey -algorithm ED448 -out localhost.key",
            &["is of a kind that browsers don't know"],
        ),
        (
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out localhost.key",
            &[
                "is not that of the certificate",
                "hint: the first certificate",
            ],
        ),
        (
            "openssl x509 -in localhost.pem -outform DER -out new && mv new localhost.pem",
            &["it is in DER", "hint: `openssl x509 -inform DER -in "],
        ),
        (
            "openssl pkey -in localhost.key -outform DER -out new && mv new localhost.key",
            &["it is in DER", "hint: `openssl pkey -inform DER -in "],
        ),
        (
            "openssl pkcs12 -export -in localhost.pem -inkey localhost.key -passout pass: -out new && mv new localhost.pem",
            &["it is an archive (PKCS#12)", "hint: `openssl pkcs12 -in "],
        ),
        (
            "openssl crl2pkcs7 -nocrl -certfile localhost.pem -out new && mv new localhost.pem",
            &["it is an archive (PKCS#7)", "openssl pkcs7 -print_certs"],
        ),
        (
            "mv localhost.pem new && mv localhost.key localhost.pem && mv new localhost.key",
            &["it holds a private key", "exchanged?"],
        ),
        (
            "cp localhost.pem localhost.key",
            &["it holds a certificate", "exchanged?"],
        ),
        (
            "openssl pkey -in localhost.key -pubout -out new && mv new localhost.key",
            &["it holds a public key"],
        ),
        (": > localhost.pem", &["the file is empty", "PEM"]),
        (
            "head -c 200 localhost.pem > new && mv new localhost.pem",
            &["what begins there does not end"],
        ),
    ];
    for (spoil, words) in cases {
        let site = site("app.php", "", "");
        let spoilt = Command::new("sh")
            .args(["-ec", spoil])
            .current_dir(site.folder())
            .status();
        assert!(spoilt.unwrap().success(), "{spoil}");
        Server::run(&site, &["serve"]).assert_refused(words);
        // `check` says the same.
        let last = words
            .iter()
            .filter(|word| **word != "TLS needs a certificate");
        let last: Vec<&str> = last.copied().collect();
        Server::run(&site, &["check"]).assert_said_with(2, &last);
    }
}

#[test]
fn certificates_and_keys_of_other_editors_are_taken() {
    for change in [
        "for f in localhost.pem localhost.key; do printf '\\357\\273\\277' | cat - $f > new; mv new $f; done",
        "sed -i 's/$/\\r/' localhost.pem localhost.key",
        "cat localhost.key localhost.pem > new; cp new localhost.pem; mv new localhost.key",
        "(echo 'Bag Attributes'; cat localhost.pem) > new; mv new localhost.pem",
    ] {
        let site = site("app.php", "", "");
        let changed = Command::new("sh")
            .args(["-ec", change])
            .current_dir(site.folder())
            .status();
        assert!(changed.unwrap().success(), "{change}");
        let server = Server::start(site);
        assert_eq!(get(&server, "/", &[]), "Hello", "{change}");
        server.stop();
    }
}

/// What a port of TLS says to a client that begins with `sent`, up to the end of the connection.
fn said_without_tls(server: &Server, sent: &[u8]) -> String {
    let mut stranger = TcpStream::connect(("127.0.0.1", port(server))).expect("it listens");
    stranger
        .set_read_timeout(Some(PATIENCE))
        .expect("a duration above 0");
    _ = stranger.write_all(sent); // a long one may be refused in the middle
    let mut said = Vec::new();
    _ = stranger.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn plain_http_on_a_port_of_tls_is_told_so_and_reaches_no_worker() {
    let more = "  trusted_subnets: [127.0.0.0/8]\n  access_log: {format: '{status} {method} {scheme}', output: access.log}\n";
    let server = Server::start(site("app.php", "", more));
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000));
    let requests = [
        "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET /\r\n\r\n",
        "get / HTTP/1.1\r\nHost: test\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody",
        "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        &long,
    ];
    for request in requests {
        let said = said_without_tls(&server, request.as_bytes());
        let start = request.get(..99).unwrap_or(request);
        assert!(said.starts_with("HTTP/1.1 400 "), "{start:?}: {said:?}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{start:?}: {said:?}");
        assert!(said.contains("https://"), "{start:?}: {said:?}");
    }
    let head = said_without_tls(&server, b"HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 400 ") && head.ends_with("\r\n\r\n"),
        "{head:?}"
    );
    server.logged(&["does not speak TLS", r#""begins_with":"GET / HT""#]);
    assert_eq!(get(&server, "/", &[]), "Hello");
    let lines = server.into_site().read("access.log");
    assert_eq!(lines.matches("400 ").count(), requests.len() + 1, "{lines}");
    assert_eq!(lines.matches("200 ").count(), 1, "{lines}");
}

#[test]
fn whoever_speaks_neither_tls_nor_http_is_dropped_and_others_are_served() {
    let metrics = free_address();
    let site = site("app.php", "", "");
    let config = site.read(".rr.yaml");
    let site = site.config(&format!("{config}metrics: {{address: '{metrics}'}}\n"));
    let server = Server::start(site);
    for stranger in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n\x16\x03\x01",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
        b"\0\0\0\0",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x03\x01\0\x05hello",
    ] {
        let said = said_without_tls(&server, stranger);
        assert!(!said.contains("HTTP"), "{stranger:?}: {said:?}");
    }
    server.logged(&["does not speak TLS"]);
    assert_eq!(get(&server, "/", &[]), "Hello");
    let text = Connection::open(metrics).get("/metrics").text();
    for (result, handshakes) in [("done", 1), ("failed", 3), ("no_tls", 3)] {
        let line =
            format!("pronghorn_http_tls_handshakes_total{{result=\"{result}\"}} {handshakes}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
    server.stop();
}

#[test]
fn plain_http_on_a_port_of_tls_is_redirected_where_requests_without_tls_are() {
    let more = "  trusted_subnets: [127.0.0.0/8]\n";
    let server = Server::start(site("app.php", "    redirect: true\n", more));
    let expected = format!("Location: https://test:{}/a?b\r\n", port(&server));
    for more in [
        "",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n",
    ] {
        let request = format!("GET /a?b HTTP/1.1\r\nHost: test:1\r\n{more}\r\n");
        let said = said_without_tls(&server, request.as_bytes());
        assert!(said.starts_with("HTTP/1.1 308 "), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
    server.stop();
}
