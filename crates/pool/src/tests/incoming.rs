use bytes::Bytes;
use pronghorn_wire::frame::{Flags, OpenFrame, Stream, encode_plain};
use proptest::prelude::*;

use crate::Quote;
use crate::relay::incoming::{Incoming, Item, PIECE, READ, START, WHOLE};

fn frame(context: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let open = OpenFrame::begin(&mut out);
    out.extend_from_slice(context);
    open.finish(&mut out, Flags::NATIVE, Stream::END, body.len())
        .unwrap();
    out.extend_from_slice(body);
    out
}

/// Feeds bytes in pieces; whole frames come out as (context, body).
fn read(bytes: &[u8], piece: usize) -> Vec<(Bytes, Vec<u8>)> {
    let mut incoming = Incoming::default();
    let mut frames = Vec::new();
    for part in bytes.chunks(piece) {
        incoming.room().extend_from_slice(part);
        while let Some(item) = incoming.next().unwrap() {
            match item {
                Item::Frame { context, body, .. } => {
                    frames.push((context, Bytes::from(body).to_vec()));
                }
                Item::Large { context, .. } => frames.push((context, Vec::new())),
                Item::Piece { bytes, .. } => {
                    assert!(bytes.len() <= PIECE);
                    frames
                        .last_mut()
                        .unwrap()
                        .1
                        .extend_from_slice(&Bytes::from(bytes));
                }
            }
        }
    }
    frames
}

#[test]
fn a_long_body_comes_in_pieces_and_the_last_one_says_so() {
    let body = vec![7; WHOLE + 100];
    let mut incoming = Incoming::starting_with(&frame(b"ctx", &body), WHOLE);
    let Some(Item::Large { context, len, .. }) = incoming.next().unwrap() else {
        panic!()
    };
    assert_eq!((&context[..], len), (&b"ctx"[..], body.len() as u64));
    let mut total = 0;
    loop {
        let Some(Item::Piece { bytes, last }) = incoming.next().unwrap() else {
            panic!()
        };
        total += bytes.len();
        if last {
            break;
        }
    }
    assert_eq!(total, body.len());
    assert!(incoming.next().unwrap().is_none());
}

#[test]
fn there_is_room_for_all_of_a_frame_that_is_expected() {
    let (short, whole, long) = (vec![7; 100], vec![7; 64 << 10], vec![7; WHOLE]);
    for (body, room) in [(short, READ), (whole, 64 << 10), (long, READ)] {
        let frame = frame(b"ctx", &body);
        let mut incoming = Incoming::default();
        assert!(incoming.is_between_frames());
        incoming.expect(*frame.first_chunk().unwrap());
        let capacity = incoming.room().capacity();
        assert!((room..WHOLE).contains(&capacity), "{capacity}");
        incoming.room().extend_from_slice(&frame[..50]);
        assert!(!incoming.is_between_frames());
    }
    // Of what is no frame nothing is expected, and a read tells what it is.
    let mut incoming = Incoming::default();
    incoming.expect([0xff; START]);
    assert!(incoming.room().capacity() < 2 * READ);
}

#[test]
fn text_is_told_from_frames_at_its_first_byte() {
    let mut incoming = Incoming::starting_with(b"W", WHOLE);
    let garbage = incoming.next().unwrap_err();
    assert_eq!(garbage.0, "no frame but text: W");
}

#[test]
fn what_may_be_a_visitors_is_told_by_its_length() {
    let told = |bytes: &[u8]| {
        let mut incoming = Incoming::starting_with(bytes, WHOLE).quoting(Quote::Messages);
        incoming.next().unwrap_err().0
    };
    let text = told(b"id,name\n1,Ada\n");
    assert!(
        text.starts_with("no frame but text, 14 bytes of it so far, which are left out"),
        "{text}"
    );
    let bytes = told(b"\x89PNG\0\0");
    assert!(
        bytes.starts_with("no frame but other bytes, 6 bytes of it"),
        "{bytes}"
    );
    let message = "PHP Warning:  Undefined variable $a in /a.php on line 2";
    let both = format!("{message}\nid,name\n");
    assert_eq!(
        told(both.as_bytes()),
        format!("no frame but text: {message}")
    );
}

#[test]
fn bytes_that_nobody_can_read_are_shown_as_numbers() {
    let mut frame = frame(b"context", b"body");
    frame[6] ^= 1; // of the check sum
    let garbage = Incoming::starting_with(&frame, WHOLE).next().unwrap_err();
    assert!(
        garbage
            .0
            .starts_with(r"no frame but bytes: \x14\x02\x0b\x00"),
        "{}",
        garbage.0
    );
}

#[test]
fn text_before_a_frame_can_be_skipped() {
    let mut bytes = b"PHP Warning: one\n\x13 two\n".to_vec();
    let text = bytes.clone();
    encode_plain(&mut bytes, Flags::CONTROL, Stream::END, b"{}");
    let mut incoming = Incoming::starting_with(&bytes, WHOLE);
    assert!(incoming.next().is_err());
    let (skipped, len) = incoming.skip_text();
    assert_eq!((skipped.as_bytes(), len), (text.as_slice(), text.len()));
    assert!(matches!(incoming.next(), Ok(Some(Item::Frame { .. }))));
}

#[test]
fn lengths_that_contradict_each_other_are_garbage() {
    let mut bytes = frame(b"context", b"body");
    bytes[12] = 200; // the context's length, beyond the payload's
    assert!(Incoming::starting_with(&bytes, WHOLE).next().is_err());
}

proptest! {
    #[test]
    fn frames_come_out_whatever_the_pieces(
        sizes in prop::collection::vec((0..5000_usize, 0..40_000_usize), 1..8), piece in 1..9000_usize,
    ) {
        let frames: Vec<_> = sizes.iter().map(|(context, body)| (vec![1; *context], vec![2; *body])).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|(context, body)| frame(context, body)).collect();
        let got: Vec<_> = read(&bytes, piece).into_iter().map(|(c, b)| (c.to_vec(), b)).collect();
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn no_bytes_make_it_panic_or_stand_still(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut incoming = Incoming::starting_with(&data, WHOLE);
        for _ in 0..10 {
            if incoming.next().is_err() && incoming.holds_text() {
                prop_assert!(incoming.skip_text().1 > 0);
            }
        }
    }
}
