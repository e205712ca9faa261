//! Long replies in shared memory, which are sent from there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_ring::layout::{DOWN, PAGE, UP};
use pronghorn_ring::{Link, Loan, SharedMemory, Thread};
use pronghorn_wire::frame::Stream;
use tokio::runtime::Handle;

use super::ahead::{Found, Stage, frame, peer, reply, settle};
use crate::call::{Answer, Pending, Reply, ReplyBody};
use crate::content::Content;
use crate::pieces::{Piece, Pieces};
use crate::relay::incoming::{Incoming, Item, READ, START};

const LONG: usize = 100_000;

fn text(len: usize) -> String {
    "0123456789".repeat(len / 10)
}

/// Answers the one call with a reply of this length that its client does not see yet.
async fn replied(stage: &mut Stage, len: usize, stream: Stream) -> Pending {
    let pending = stage.call("/long");
    settle().await;
    let found = stage.worker.begins_next();
    let frame = reply(found, 0, &text(len), stream);
    stage.worker.send(&frame);
    pending
}

async fn taken(pending: &mut Pending) -> Reply {
    match pending.answer().await {
        Ok(Answer::Reply(reply)) => *reply,
        other => panic!("{other:?}"),
    }
}

fn whole(reply: Reply) -> Content {
    match reply.body {
        ReplyBody::Whole(content) => content,
        other => panic!("{other:?}"),
    }
}

fn loan(content: Content) -> Loan {
    match content {
        Content::Lent(loan) => loan,
        Content::Here(bytes) => panic!("{} bytes were copied", bytes.len()),
    }
}

/// Tasks take turns; what is no task may be polled later.
async fn in_a_task(test: impl Future<Output = ()> + Send + 'static) {
    Handle::current().spawn(test).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_long_reply_sends_it_from_where_it_lies() {
    in_a_task(sends_from_where_it_lies()).await;
}

async fn sends_from_where_it_lies() {
    let mut stage = Stage::new(None).await;
    let mut pending = replied(&mut stage, LONG, Stream::END).await;
    let loan = loan(whole(taken(&mut pending).await));
    assert!(stage.worker.peer.room() < UP, "it still lies there");
    let rest = loan.send(|bytes| {
        assert!(*bytes == *text(LONG).as_bytes());
        LONG - 10
    });
    assert_eq!(rest, "0123456789");
    assert_eq!(stage.worker.peer.room(), UP);
    settle().await;
    // The worker has answered, so it takes the next one.
    let mut next = replied(&mut stage, 10, Stream::END).await;
    assert_eq!(Bytes::from(whole(taken(&mut next).await)), "0123456789");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_later_finds_a_copy_and_keeps_no_room() {
    let mut stage = Stage::new(None).await;
    let mut pending = replied(&mut stage, LONG, Stream::END).await;
    settle().await;
    assert_eq!(stage.worker.peer.room(), UP);
    let mut next = replied(&mut stage, 10, Stream::END).await;
    assert_eq!(Bytes::from(whole(taken(&mut next).await)), "0123456789");
    assert!(Bytes::from(whole(taken(&mut pending).await)) == text(LONG));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_the_worker_changes_is_what_it_was_when_it_was_looked_at() {
    let thread = Thread::serve(&Handle::current()).unwrap();
    let found = Found::default();
    for len in [LONG, 2 * UP / 10 * 10] {
        let shared = Arc::new(SharedMemory::new().unwrap());
        let mut peer = peer(&shared, &thread);
        let mut link = Link::new(shared);
        let whole = reply(found, 0, &text(len), Stream::END);
        let there = whole.len().min(UP);
        peer.write(&whole[..there], Duration::ZERO).unwrap();
        let mut incoming = Incoming::starting_with(b"", UP);
        let wish = incoming.wish(link.peek(READ)).unwrap();
        let other = frame([0; 4], 0, &[0; 1000], "", Stream::END);
        peer.scribble_over(PAGE + 2 * DOWN, &other[..START]);
        let (head, body) = link.borrow(wish.head, wish.body.clone()).unwrap();
        incoming.put_lent(&wish, head, body);
        let mut item = incoming.next().unwrap().unwrap();
        if let Item::Large { len: of, .. } = item {
            assert_eq!(of, len as u64);
            item = incoming.next().unwrap().unwrap();
        }
        let (Item::Frame { body, .. } | Item::Piece { bytes: body, .. }) = item else {
            panic!("{item:?}")
        };
        assert_eq!(body.len(), there - wish.head);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_has_to_want_it() {
    let mut stage = Stage::new(None).await;
    let pending = replied(&mut stage, LONG, Stream::END).await;
    drop(pending);
    settle().await;
    assert_eq!(stage.worker.peer.room(), UP);
}

#[tokio::test(start_paused = true)]
async fn it_outlives_its_worker() {
    let mut stage = Stage::new(None).await;
    let mut pending = replied(&mut stage, LONG, Stream::END).await;
    let loan = loan(whole(taken(&mut pending).await));
    let Stage { pool, worker, .. } = stage;
    worker.ends(&pool).await;
    assert!(Bytes::from(loan) == text(LONG));
}

#[tokio::test(start_paused = true)]
async fn pieces_of_a_stream_are_copied() {
    let mut stage = Stage::new(None).await;
    let mut pending = replied(&mut stage, LONG, Stream::MORE).await;
    let ReplyBody::Pieces { mut pieces, .. } = taken(&mut pending).await.body else {
        panic!()
    };
    let first = pieces.next().await;
    assert!(matches!(first, Some(Piece::Bytes(Content::Here(_)))));
}

/// What its memory can't hold at once is lent in the parts that lie there.
#[tokio::test(start_paused = true)]
async fn a_reply_that_is_longer_than_the_box_is_lent_in_parts() {
    in_a_task(lent_in_parts()).await;
}

async fn lent_in_parts() {
    const LEN: usize = 3 * UP / 10 * 10;
    let mut stage = Stage::new(None).await;
    let mut pending = stage.call("/long");
    settle().await;
    let found = stage.worker.begins_next();
    let mut frame = VecDeque::from(reply(found, 0, &text(LEN), Stream::END));
    let mut part = |stage: &mut Stage| {
        let part: Vec<u8> = frame.drain(..frame.len().min(UP / 2)).collect();
        stage.worker.send(&part);
        !part.is_empty()
    };
    part(&mut stage);
    let ReplyBody::Pieces { mut pieces, len } = taken(&mut pending).await.body else {
        panic!()
    };
    assert_eq!(len, Some(LEN as u64));
    let mut body = Vec::new();
    while body.len() < LEN {
        let loan = loan(piece(&mut pieces).await);
        // One in two is late, and the worker goes on.
        assert!(stage.worker.peer.room() < UP, "it still lies there");
        if body.len() / UP % 2 == 1 {
            settle().await;
            assert_eq!(stage.worker.peer.room(), UP);
        }
        body.extend_from_slice(&Bytes::from(loan));
        assert_eq!(stage.worker.peer.room(), UP);
        part(&mut stage);
    }
    assert!(body == text(LEN).as_bytes());
    assert!(matches!(pieces.next().await, Some(Piece::End)));
}

async fn piece(pieces: &mut Pieces) -> Content {
    match pieces.next().await {
        Some(Piece::Bytes(content)) => content,
        other => panic!("{other:?}"),
    }
}
