use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::JoinSet;

use super::*;

const LONGEST: usize = 4096;

/// All bytes at once, and in every other way: one by one.
fn followed(bytes: &[u8]) -> Result<(), String> {
    let whole = Replies::new(LONGEST).follow(bytes);
    let mut replies = Replies::new(LONGEST);
    let parts = bytes.chunks(1).try_for_each(|part| replies.follow(part));
    assert_eq!(whole.is_ok(), parts.is_ok(), "{whole:?} {parts:?}");
    whole
}

fn text(length: usize) -> Vec<u8> {
    let mut all = format!("${length}\r\n").into_bytes();
    all.resize(all.len() + length, b'x');
    all.extend(b"\r\n");
    all
}

fn list(count: usize, value: &[u8]) -> Vec<u8> {
    let mut all = format!("*{count}\r\n").into_bytes();
    all.extend(value.repeat(count));
    all
}

fn nested(depth: usize) -> Vec<u8> {
    [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat()
}

#[test]
fn replies_within_the_bound_are_followed_without_end() {
    let value = size_of::<Value>();
    let most = (LONGEST - value) / (value + 1);
    for reply in [
        b"+OK\r\n".to_vec(),
        b"-ERR x\r\n".to_vec(),
        b"$-1\r\n".to_vec(),
        b"*-1\r\n".to_vec(),
        b"*0\r\n".to_vec(),
        b"$0\r\n\r\n".to_vec(),
        b"$2\r\n\r\n\r\n".to_vec(),
        b"*2\r\n*1\r\n$1\r\na\r\n:1\r\n".to_vec(),
        text(LONGEST - value),
        list(most, b"$1\r\nx\r\n"),
        nested(DEEPEST),
    ] {
        followed(&reply.repeat(50)).unwrap_or_else(|wrong| panic!("{wrong}: {reply:?}"));
    }
}

#[test]
fn a_reply_beyond_the_bound_is_refused_where_it_says_so() {
    let value = size_of::<Value>();
    let beyond = format!("a reply takes more than {LONGEST} bytes");
    let length = |kind: char, length: u64| format!("{kind}{length}\r\n").into_bytes();
    for head in [
        length('$', (LONGEST - value + 1) as u64),
        length('$', 1 << 40),
        length('$', u64::MAX),
        length('*', ((LONGEST - value) / value + 1) as u64),
        length('*', 1 << 31),
        length('*', u64::MAX),
        [
            b"*2\r\n".to_vec(),
            text(LONGEST - 4 * value),
            text(value + 1),
        ]
        .concat(),
    ] {
        assert_eq!(followed(&head), Err(beyond.clone()), "{head:?}");
    }
    assert_eq!(
        followed(&nested(DEEPEST + 1)),
        Err(format!("lists are within lists, more than {DEEPEST} deep"))
    );
}

#[test]
fn a_line_ends_within_its_bound() {
    let mut replies = Replies::new(1 << 20);
    let most = usize::try_from(LONGEST_LINE).unwrap();
    let line = [b"+".to_vec(), vec![b'x'; most - 1], b"\r\n".to_vec()].concat();
    replies.follow(&line).expect("it fits");
    let endless = [b"-".to_vec(), vec![b'x'; most + 1]].concat();
    let wrong = replies.follow(&endless).expect_err("it has no end");
    assert_eq!(wrong, format!("a line has more than {LONGEST_LINE} bytes"));
}

#[test]
fn bytes_that_are_no_reply_are_refused_with_their_begin() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"%1\r\n", // RESP3, which nobody asked for
        b">1\r\n",
        b"$1\n",
        b"$x\r\n",
        b"$+1\r\n",
        b"$-2\r\n",
        b"$\r\n",
        b"*18446744073709551616\r\n",
        b"*0000000000000000000000000000",
        b"$1\r\nxy",
        b"+a\nb\r\n",
    ] {
        let wrong = followed(bytes).expect_err("it is no reply");
        assert!(
            wrong.starts_with("what answers is no Redis: it says `"),
            "{wrong}"
        );
    }
}

/// A connection to a peer that answers each command so, in the background.
async fn connection(answer: Vec<u8>) -> (MultiplexedConnection, JoinSet<()>) {
    let (ours, mut theirs) = duplex(1 << 16);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut asked = [0; 4096];
        while theirs.read(&mut asked).await.is_ok_and(|count| count > 0) {
            if theirs.write_all(&answer).await.is_err() {
                break;
            }
        }
    });
    let client = RedisConnectionInfo::default().set_skip_set_lib_name();
    let socket = Bounded::new(ours, LONGEST);
    let config = AsyncConnectionConfig::new();
    let opened = MultiplexedConnection::new_with_config(&client, socket, config).await;
    let (connection, driver) = opened.unwrap();
    tasks.spawn(driver);
    (connection, tasks)
}

#[tokio::test(start_paused = true)]
async fn the_client_reads_what_is_within_the_bound() {
    let length = LONGEST - size_of::<Value>();
    let (mut connection, _tasks) = connection(text(length)).await;
    for _ in 0..3 {
        let answer = connection.req_packed_command(&cmd("PING")).await;
        assert_eq!(answer, Ok(Value::BulkString(vec![b'x'; length])));
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_hears_why_a_connection_was_given_up() {
    for (answer, why) in [
        (
            b"$1099511627776\r\n".to_vec(),
            "a reply takes more than 4096 bytes",
        ),
        (
            b"*2147483648\r\n".to_vec(),
            "a reply takes more than 4096 bytes",
        ),
        (nested(100_000), "lists are within lists, more than 8 deep"),
        (vec![b'+'; 1 << 20], "a line has more than 65536 bytes"),
        (b"220 mail\r\n".to_vec(), "no Redis: it says `220 mail"),
    ] {
        let (mut connection, _tasks) = connection(answer).await;
        let failed = connection
            .req_packed_command(&cmd("PING"))
            .await
            .unwrap_err();
        assert!(failed.is_io_error(), "{failed:?}");
        assert!(failed.to_string().contains(why), "{failed}");
    }
}
