//! A server's thread and a worker's in one process, over real memory, with real sleeps in the
//! kernel.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::{pwrite, read};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::layout::{DOWN, PAGE, UP, c_header};
use crate::sync::Ordering::Relaxed;
use crate::{Link, Peer, SharedMemory, Thread};

const LONGEST: Duration = Duration::from_secs(20);

fn io_thread() -> (Runtime, Thread) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .on_thread_park(Thread::before_park)
        .on_thread_unpark(Thread::after_park)
        .build()
        .unwrap();
    let thread = Thread::serve(runtime.handle()).unwrap();
    // Its task has to have run once.
    runtime.block_on(tokio::task::yield_now());
    (runtime, thread)
}

fn copy(descriptor: impl AsFd) -> OwnedFd {
    descriptor.as_fd().try_clone_to_owned().unwrap()
}

fn pair(thread: &Thread) -> (Link, Peer) {
    let shared = Arc::new(SharedMemory::new().unwrap());
    let peer = Peer::attach(
        copy(shared.memory()),
        copy(thread.page()),
        copy(thread.bell()),
    );
    (Link::new(shared), peer.unwrap())
}

/// Answers each message, four bytes of length and as many of content, with the same.
fn echo(mut peer: Peer, messages: usize) {
    let mut buffer = vec![0; DOWN];
    for _ in 0..messages {
        let mut message = Vec::new();
        while message.len() < 4
            || message.len() < 4 + u32::from_le_bytes(message[..4].try_into().unwrap()) as usize
        {
            let read = peer.read(&mut buffer, LONGEST).unwrap();
            assert!(read > 0, "nothing came");
            message.extend_from_slice(&buffer[..read]);
        }
        peer.write(&message, LONGEST).unwrap();
    }
}

async fn call(link: &mut Link, content: &[u8]) {
    let mut message = u32::try_from(content.len()).unwrap().to_le_bytes().to_vec();
    message.extend_from_slice(content);
    link.write_all(&message).await.unwrap();
    let mut answer = vec![0; message.len()];
    link.read_exact(&mut answer).await.unwrap();
    assert!(answer == message, "another answer");
}

#[test]
fn messages_of_all_sizes_come_back_as_they_were() {
    let (runtime, thread) = io_thread();
    let (mut link, peer) = pair(&thread);
    let sizes: Vec<usize> = (0..500)
        .map(|round| match round % 10 {
            0 => fastrand::usize(..3 * UP),
            1 => fastrand::usize(..DOWN + 10),
            _ => fastrand::usize(..2_000),
        })
        .collect();
    let worker = {
        let count = sizes.len();
        std::thread::spawn(move || echo(peer, count))
    };
    runtime.block_on(async {
        for size in sizes {
            let mut content = vec![0; size];
            fastrand::fill(&mut content);
            call(&mut link, &content).await;
        }
    });
    worker.join().unwrap();
}

#[test]
fn a_thread_says_where_it_sleeps() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let (runtime, thread) = io_thread();
    let (_link, peer) = pair(&thread);
    let usual = sched_getaffinity(None).unwrap();
    let may_run = (0..CpuSet::MAX_CPU).filter(|processor| usual.is_set(*processor));
    for processor in may_run.take(4) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        assert_eq!(peer.threads_processor() as usize, processor);
    }
}

/// However a loan ends, before the link reads on or because it does; also where the worker waits
/// for its room.
#[test]
fn what_is_lent_is_what_was_put_there() {
    const TOTAL: usize = 200 * UP;
    // 251 is prime, so no part of the stream looks like another one nearby.
    let put = |range: Range<usize>| range.map(|at| u8::try_from(at % 251).unwrap());
    let (runtime, thread) = io_thread();
    let (mut link, mut peer) = pair(&thread);
    let worker = std::thread::spawn(move || {
        let mut at = 0;
        while at < TOTAL {
            let end = TOTAL.min(at + fastrand::usize(1..UP));
            let bytes: Vec<u8> = put(at..end).collect();
            peer.write(&bytes, LONGEST).unwrap();
            at = end;
        }
        peer
    });
    let mut buffer = vec![0; UP];
    let mut at = 0;
    let mut lent = 0;
    let reading = async {
        while at < TOTAL {
            let (head, most) = (fastrand::usize(..9), fastrand::usize(1..UP));
            let Some((head, loan)) = link.borrow(head, 1..=most) else {
                let read = link.read(&mut buffer).await.unwrap();
                assert!(buffer[..read].iter().copied().eq(put(at..at + read)));
                at += read;
                continue;
            };
            assert!(head.iter().copied().eq(put(at..at + head.len())));
            at += head.len();
            let end = at + loan.len();
            lent += loan.len();
            let sent = fastrand::usize(..=loan.len());
            let mut after = ReadBuf::new(&mut []);
            let mut next = [0; 500];
            match fastrand::u8(..4) {
                0 => drop(loan),
                1 => assert!(Bytes::from(loan).into_iter().eq(put(at..end))),
                reads_on => {
                    if reads_on == 2 {
                        after = ReadBuf::new(&mut next);
                        link.read_now(&mut after).unwrap();
                    }
                    let rest = loan.send(|bytes| {
                        assert!(bytes.iter().copied().eq(put(at..end)));
                        sent
                    });
                    assert!(rest.into_iter().eq(put(at + sent..end)));
                }
            }
            let after = after.filled();
            assert!(after.iter().copied().eq(put(end..end + after.len())));
            at = end + after.len();
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(LONGEST * 3, reading).await })
        .expect("room was not given back");
    assert!(lent > TOTAL / 4, "{lent} of {TOTAL} were lent");
    assert_eq!(worker.join().unwrap().room(), UP);
}

#[test]
fn no_wake_up_is_lost_in_many_short_exchanges_with_several_workers() {
    const EXCHANGES: usize = 20_000;
    let (runtime, thread) = io_thread();
    let mut workers = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let (mut link, peer) = pair(&thread);
        workers.push(std::thread::spawn(move || echo(peer, EXCHANGES)));
        calls.push(runtime.spawn(async move {
            for _ in 0..EXCHANGES {
                call(&mut link, b"hello").await;
            }
        }));
    }
    runtime.block_on(async {
        for call in calls {
            tokio::time::timeout(LONGEST * 3, call)
                .await
                .expect("a wake-up was lost")
                .unwrap();
        }
    });
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn a_reply_waits_while_enough_calls_lie_there() {
    let _thread = io_thread();
    let page = memfd_create("page", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&page, PAGE as u64).unwrap();
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let shared = Arc::new(SharedMemory::new().unwrap());
    let mut peer = Peer::attach(copy(shared.memory()), copy(&page), copy(&bell)).unwrap();
    let mut link = Link::new(shared);
    // Another sleep of the thread each time: a worker rings once for each.
    let mut sleeps = (1_u32..).step_by(2);
    let mut rings = |peer: &mut Peer| {
        pwrite(&page, &sleeps.next().unwrap().to_ne_bytes(), 0).unwrap();
        peer.write_reply(b"done");
        read(&bell, &mut [0; 8]).is_ok()
    };
    let mut rings_for = |enough| -> Vec<bool> {
        link.set_wakeup_threshold(enough);
        (0..4).for_each(|call| link.offer(call));
        assert_eq!(link.write_some(b"calls").unwrap(), 5);
        let replies = (0..4).map(|call| peer.claims(call) && rings(&mut peer));
        let rung = replies.collect();
        peer.read(&mut [0; 5], LONGEST).unwrap();
        rung
    };
    assert_eq!(rings_for(1), [false, false, false, true]);
    assert_eq!(rings_for(3), [false, true, true, true]);
    assert_eq!(rings_for(4), [true; 4]);
    assert_eq!(rings_for(0), [true; 4], "nothing is enough");
}

#[test]
fn replies_that_wait_for_each_other_arrive() {
    const BATCHES: usize = 5_000;
    const NUMBERS: Range<u32> = 0..5;
    const BATCH: usize = NUMBERS.end as usize;
    let (runtime, thread) = io_thread();
    let (mut link, mut peer) = pair(&thread);
    link.set_wakeup_threshold(2);
    let worker = std::thread::spawn(move || {
        let mut message = [0; 5];
        for call in NUMBERS.cycle().take(BATCHES * BATCH) {
            let read = peer.read(&mut message, LONGEST).unwrap();
            assert_eq!(read, message.len(), "nothing came");
            assert!(peer.claims(call));
            peer.write_reply(&message);
        }
    });
    let calls = async {
        let mut answers = [0; 5 * BATCH];
        for _ in 0..BATCHES {
            NUMBERS.for_each(|call| link.offer(call));
            link.write_all(&b"hello".repeat(BATCH)).await.unwrap();
            link.read_exact(&mut answers).await.unwrap();
            assert_eq!(answers.chunks(5).filter(|it| it == b"hello").count(), BATCH);
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(LONGEST * 3, calls).await })
        .expect("a wake-up was lost");
    worker.join().unwrap();
}

#[test]
fn counts_that_can_not_be_are_an_error_and_nothing_is_read() {
    let (runtime, thread) = io_thread();
    runtime.block_on(async {
        for (put, taken) in [
            (u64::try_from(UP).unwrap() + 1, 0),
            (u64::MAX, 0),
            (0, 1),
            (0, u64::MAX / 2),
        ] {
            let (mut link, peer) = pair(&thread);
            peer.scribble(put, taken);
            let mut buffer = [0; 16];
            let read = link.read_now(&mut ReadBuf::new(&mut buffer));
            let written = link.write(b"x").await;
            assert!(read.is_err() != written.is_err(), "{put} {taken}");
            assert_eq!(buffer, [0; 16]);
        }
    });
}

/// A thread that always has something to do never parks, so nobody rings: it has to look by itself.
#[test]
fn a_busy_thread_reads_a_reply_within_a_few_of_its_turns() {
    const TURNS: usize = 3;
    let (runtime, thread) = io_thread();
    let (mut link, mut peer) = pair(&thread);
    runtime.block_on(async {
        for _ in 0..100 {
            let mut reading = JoinSet::new();
            reading.spawn(async move {
                let mut buffer = [0; 5];
                link.read_exact(&mut buffer).await.unwrap();
                link
            });
            // It waits by now, and this thread goes on without ever parking.
            tokio::task::yield_now().await;
            peer.write(b"hello", LONGEST).unwrap();
            let mut turns = 0;
            link = loop {
                assert!(turns < TURNS, "{turns} turns");
                crate::collect();
                tokio::task::yield_now().await;
                turns += 1;
                if let Some(read) = reading.try_join_next() {
                    break read.unwrap();
                }
            };
        }
    });
}

/// Whatever a worker writes over its box, its server's end reads no more than there is room for, or
/// says that it makes no sense; it neither panics nor waits for something that is there.
#[test]
fn a_box_that_is_scribbled_over_is_an_error_or_other_bytes() {
    const SCRIBBLES: usize = 20_000;
    let (runtime, thread) = io_thread();
    let (mut harmless, mut detected) = (0, 0);
    runtime.block_on(async {
        let (mut link, mut peer) = pair(&thread);
        let mut buffer = vec![0; 4096];
        for _ in 0..SCRIBBLES {
            let len = fastrand::usize(1..64);
            let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
                .take(len)
                .collect();
            // Half of them where the words are.
            let range = if fastrand::bool() { 512 } else { DOWN + UP };
            peer.scribble_over(fastrand::usize(..range), &bytes);
            let read = link.read_now(&mut ReadBuf::new(&mut buffer)).map(|_| 0);
            _ = link.unread(); // any number; the relay compares it with one of its own
            let written = tokio::time::timeout(Duration::ZERO, link.write(&bytes)).await;
            match (read, written) {
                (Ok(_), Ok(Ok(_)) | Err(_)) => harmless += 1,
                _ => {
                    detected += 1;
                    (link, peer) = pair(&thread);
                }
            }
        }
    });
    println!("{SCRIBBLES} scribbles: {detected} detected, {harmless} harmless");
    assert!(detected > SCRIBBLES / 100 && harmless > SCRIBBLES / 100);
}

/// The long form is `make soak`'s scribbler, with real workers.
#[test]
fn whatever_is_written_into_a_box_its_server_takes_no_more_than_its_own() {
    const SCRIPTS: u64 = 500;
    for seed in 0..SCRIPTS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut script = vec![0; 4 * 60];
        random.fill(&mut script);
        // Half of them by a worker that does nothing wrong with the words, so that something is
        // read.
        if seed % 2 == 0 {
            for step in script.chunks_exact_mut(4).filter(|step| step[0] % 6 == 0) {
                let up_put = 192 / 4;
                step.copy_from_slice(&[0, up_put, random.u8(..), random.u8(..)]);
            }
        }
        crate::fuzz_box(&script);
    }
}

#[test]
fn a_worker_can_neither_resize_its_box_nor_write_to_the_threads_page() {
    let (_runtime, thread) = io_thread();
    let shared = SharedMemory::new().unwrap();
    assert!(ftruncate(shared.memory(), 0).is_err());
    assert!(ftruncate(shared.memory(), 1 << 30).is_err());
    let seals = fcntl_get_seals(shared.memory()).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    #[expect(unsafe_code, reason = "what a worker might try")]
    // SAFETY: a new range, which would be left alone.
    let mapped = unsafe {
        mmap(
            std::ptr::null_mut(),
            4096,
            rights,
            MapFlags::SHARED,
            thread.page(),
            0,
        )
    };
    assert!(mapped.is_err());
}

#[test]
fn a_worker_tells_what_it_had_taken_before_a_call() {
    let shared = Arc::new(SharedMemory::new().unwrap());
    let link = Link::new(shared.clone());
    assert_eq!((link.cpu_before(0), link.cpu_before(7)), (None, None));
    let [call, cpu] = &shared.words().timed;
    cpu.store(1500, Relaxed);
    call.store(7, Relaxed);
    assert_eq!(link.cpu_before(7), Some(Duration::from_nanos(1500)));
    assert_eq!((link.cpu_before(0), link.cpu_before(8)), (None, None));
}

#[test]
fn the_extension_has_this_layout() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../ext/pronghorn/ring_layout.h"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, c_header()).unwrap();
    }
    let there = std::fs::read_to_string(file).unwrap();
    assert_eq!(there, c_header(), "UPDATE_GOLDEN=1 writes it anew");
}
