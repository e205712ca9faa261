//! A real Centrifugo with a client of its own: `make test-brokers`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{PATIENCE, Server, Site, built, free_address, wait_for};

/// Centrifugo, until this is dropped.
struct Centrifugo(Child);

impl Drop for Centrifugo {
    fn drop(&mut self) {
        _ = self.0.kill(); // it has ended already
        _ = self.0.wait();
    }
}

impl Centrifugo {
    fn start(site: &Site, at: SocketAddr, api: SocketAddr, proxy: SocketAddr) -> Self {
        let endpoint = format!(
            r#""endpoint":"grpc://{proxy}","timeout":"20s","http_headers":["X-Token","Type"],
               "grpc":{{"credentials_key":"proxy-key","credentials_value":"of-proxy","compression":true}}"#
        );
        let config = format!(
            r#"{{"http_server":{{"address":"127.0.0.1","port":"{}"}},
            "grpc_api":{{"enabled":true,"address":"127.0.0.1","port":{},"key":"of-api"}},
            "client":{{"allowed_origins":["*"],"proxy":{{"connect":{{"enabled":true,{endpoint}}}}}}},
            "channel":{{"proxy":{{"subscribe":{{{endpoint}}},"publish":{{{endpoint}}}}},
            "without_namespace":{{"subscribe_proxy_enabled":true,"publish_proxy_enabled":true}}}},
            "rpc":{{"proxy":{{{endpoint}}},"without_namespace":{{"proxy_enabled":true}}}}}}"#,
            at.port(),
            api.port(),
        );
        site.write("centrifugo.json", &config);
        let log = std::fs::File::create(site.path("centrifugo.log")).expect("a file");
        let tools = built("pronghorn").with_file_name("../tools");
        let process = Command::new(tools.join("centrifugo"))
            .arg("-c")
            .arg(site.path("centrifugo.json"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`scripts/need centrifugo` has built it");
        let centrifugo = Self(process);
        wait_for("Centrifugo", || TcpStream::connect(at).ok());
        centrifugo
    }
}

/// A client's WebSocket. A message has one line of JSON, or several.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(at: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET /connection/websocket HTTP/1.1\r\nHost: {at}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Sec-WebSocket-Version: 13\r\nX-Token: of-client\r\nType: rpc\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        Self(stream)
    }

    /// Sends a command and gives so many lines.
    fn ask(&mut self, command: &str, lines: usize) -> String {
        let length = u8::try_from(command.len()).unwrap();
        assert!(length < 126);
        // The mask of zeros leaves the text as it is.
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], command.as_bytes()].concat();
        self.0.get_mut().write_all(&frame).unwrap();
        let mut said = String::new();
        while said.lines().count() < lines {
            said.push_str(&self.hear());
            said.push('\n');
        }
        said
    }

    fn hear(&mut self) -> String {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        let mut length = usize::from(head[1] & 0x7f);
        if length == 126 {
            self.0.read_exact(&mut head).unwrap();
            length = usize::from(u16::from_be_bytes(head));
        }
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

#[test]
fn its_clients_are_answered_by_php_and_php_publishes_to_them() {
    let (at, api, proxy) = (free_address(), free_address(), free_address());
    let config = format!(
        "version: '3'\nrpc: {{listen: 'tcp://{}'}}\nlogs: {{level: debug}}\n\
         http: {{address: '127.0.0.1:0', pool: {{num_workers: 1, command: php {}}}}}\n\
         centrifuge:\n  proxy_address: '{proxy}'\n  grpc_api_address: '{api}'\n  \
         grpc_api_key: of-api\n  proxy_key: of-proxy\n  use_compressor: true\n  \
         pool: {{num_workers: 2, command: php {}}}\n",
        free_address(),
        Site::fixture("foreign/worker.php").display(),
        Site::fixture("centrifugo.php").display(),
    );
    let server = Server::start(Site::new().config(&config));
    let centrifugo = Centrifugo::start(server.site(), at, api, proxy);
    let mut client = Client::connect(at);
    let said = client.ask(r#"{"id":1,"connect":{}}"#, 1);
    assert!(said.contains(r#""data":{"token":"of-client"}"#), "{said}");
    let said = client.ask(r#"{"id":2,"subscribe":{"channel":"news"}}"#, 1);
    assert!(said.contains(r#""id":2,"subscribe":{"#), "{said}");
    let said = client.ask(r#"{"id":3,"subscribe":{"channel":"secret"}}"#, 1);
    assert!(
        said.contains(r#""code":403,"message":"not yours""#),
        "{said}"
    );
    let said = client.ask(
        r#"{"id":4,"publish":{"channel":"news","data":{"by":"client"}}}"#,
        2,
    );
    assert!(said.contains(r#""publish":{}"#), "{said}");
    assert!(said.contains(r#""data":{"by":"client"}"#), "{said}");
    let said = client.ask(r#"{"id":5,"rpc":{"method":"announce","data":{}}}"#, 2);
    assert!(said.contains(r#""data":{"by":"api"}"#), "{said}");
    assert!(said.contains(r#""data":{"pong":true}"#), "{said}");
    let said = client.ask(r#"{"id":6,"rpc":{"method":"ignore","data":{}}}"#, 1);
    assert!(said.contains(r#""code":100"#), "{said}");
    server.logged(&["a call of Centrifugo failed", "the worker did not answer"]);
    drop(client);
    drop(centrifugo);
    let log = server.log();
    assert!(!log.contains("of-api") && !log.contains("of-proxy"));
    server.stop();
}
