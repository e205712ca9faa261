//! Against a real server, which becomes wrong while it is under load: errors are answered fast.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use pronghorn_process::Spawner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::arguments::Arguments;
use crate::scenario::{folder, select};
use crate::servers::Peer;

const RIGHT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello World!";
const ERROR: &str = "HTTP/1.1 500 Oh no\r\nContent-Length: 12\r\n\r\nHello World!";
const OTHER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello Wolrd!";
const MOVED: &str = "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n";
/// So many right answers come first.
const RIGHT_ONES: usize = 50;

async fn serve(listener: TcpListener, later: &'static str) -> io::Result<()> {
    let answered = Arc::new(AtomicUsize::new(0));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn(answer(stream, Arc::clone(&answered), later));
    }
}

async fn answer(
    mut stream: TcpStream,
    answered: Arc<AtomicUsize>,
    later: &'static str,
) -> io::Result<()> {
    let mut request = [0; 1024];
    while stream.read(&mut request).await? > 0 {
        let is_right = answered.fetch_add(1, Ordering::Relaxed) < RIGHT_ONES;
        let answer = if is_right { RIGHT } else { later };
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn measured(later: &'static str, load: Load, site: &Site) -> Result<Seen, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer: Peer = format!("fake=http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, later));
    let scenario = select(&folder(), &["hello".to_owned()]).unwrap().remove(0);
    let server = Server::start(&peer, &scenario, site).await.unwrap();
    run(&server, load, 1, site).await
}

#[tokio::test]
async fn a_server_that_answers_errors_fast_gets_no_rate() {
    let arguments = Arguments::parse_from(["pronghorn-bench", "--pronghorn", "/bin/sh"]);
    let site = Site::new(Spawner::start().unwrap(), &arguments).unwrap();
    for load in [
        Load::Closed { connections: 4 },
        Load::Open {
            rate: 200,
            connections: 4,
        },
    ] {
        let seen = measured(RIGHT, load, &site).await.unwrap();
        assert!(seen.requests > 100.0, "{load}: {seen:?}");
        for wrong in [ERROR, OTHER, MOVED] {
            let error = measured(wrong, load, &site).await.unwrap_err().to_string();
            let expected = [
                "status 500",
                "status 302",
                "Hello Wolrd!",
                "had a status above 399",
            ];
            assert!(
                expected.iter().any(|text| error.contains(text)),
                "{load}: {error}"
            );
        }
    }
}

fn counted(requests: f64, bytes: f64) -> Counted {
    let latency = Latency {
        p50_us: 1.0,
        p90_us: 1.0,
        p99_us: 1.0,
        p999_us: 1.0,
        max_us: 1.0,
    };
    let seen = Seen {
        requests,
        rate: requests,
        latency,
        unanswered: 0,
        errors_percent: 0.0,
    };
    Counted { seen, bytes }
}

#[test]
fn answers_of_another_size_than_those_looked_at_are_no_rate() {
    let sizes = [1000, 1010];
    for (bytes, plausible) in [
        (10_050_000.0, true),
        (9_600_000.0, true),
        (9_400_000.0, false),
        (10_900_000.0, false),
    ] {
        let result = plausible_size(&counted(10_000.0, bytes), 10, &sizes);
        assert_eq!(result.is_ok(), plausible, "{bytes}");
    }
    assert!(
        plausible_size(&counted(10_000.0, 1.0), 10, &[]).is_ok(),
        "nothing to compare with"
    );
}

#[test]
fn answers_under_way_at_the_end_do_not_count_against_a_server() {
    assert!(plausible_size(&counted(100.0, 200.0 * 1000.0), 100, &[1000]).is_ok());
}
