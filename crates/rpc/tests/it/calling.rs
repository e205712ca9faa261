use std::time::Duration;

use pronghorn_plugin_api::rpc::{Failure, Methods};
use pronghorn_rpc::{CallError, Client, Server};
use pronghorn_testkit::Directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{loopback, socket, tcp};

const SOON: Duration = Duration::from_secs(20);

fn methods() -> Methods {
    let methods = Methods::default();
    let service = methods.service("test", ());
    service.add(
        "Twice",
        async |(), text: String| -> Result<String, Failure> { Ok(format!("{text}{text}")) },
    );
    service.add("No", async |(), _: bool| -> Result<bool, Failure> {
        Err(Failure::new("not today"))
    });
    methods
}

#[tokio::test]
async fn a_client_calls_one_method_after_the_other() {
    let listener = loopback();
    let endpoint = listener.endpoint().clone();
    let _server = Server::start(listener, methods()).unwrap();
    let mut client = Client::connect(&endpoint).await.unwrap();
    let twice = client.call("test.Twice", "\"ab\"", SOON).await.unwrap();
    assert_eq!(twice, b"\"abab\"");
    let no = client.call("test.No", "true", SOON).await.unwrap_err();
    assert!(
        matches!(&no, CallError::Failed(why) if why == "not today"),
        "{no:?}"
    );
    // Longer than what one read takes.
    let long = format!("\"{}\"", "x".repeat(100_000));
    let twice = client.call("test.Twice", &long, SOON).await.unwrap();
    assert_eq!(twice.len(), 200_002);
}

#[tokio::test]
async fn nobody_there_is_said_with_the_address() {
    let directory = Directory::new();
    let error = Client::connect(&socket(&directory)).await.unwrap_err();
    assert!(error.to_string().starts_with("unix://"), "{error}");
}

#[tokio::test]
async fn something_else_than_a_server_is_no_answer() {
    for said in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"short", b""] {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = other.local_addr().unwrap().port();
        let (answer, ()) = tokio::join!(
            async {
                let mut client = Client::connect(&tcp(Some("127.0.0.1"), port))
                    .await
                    .unwrap();
                client.call("test.Twice", "\"\"", SOON).await
            },
            async {
                let (mut stream, _) = other.accept().await.unwrap();
                _ = stream.read(&mut [0; 64]).await.unwrap();
                stream.write_all(said).await.unwrap();
            }
        );
        assert!(
            matches!(answer, Err(CallError::Frame(_) | CallError::Io(_))),
            "{answer:?}"
        );
    }
}
