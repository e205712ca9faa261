use proptest::prelude::*;

use super::*;

/// All messages of a stream that comes in these pieces, and what is left.
fn messages(
    framing: &Framing,
    most: usize,
    pieces: &[&[u8]],
) -> (Vec<Bytes>, Result<Option<Bytes>, BadMessage>) {
    let (mut framer, mut received) = (Framer::new(most), BytesMut::new());
    let mut found = Vec::new();
    for piece in pieces {
        received.extend_from_slice(piece);
        loop {
            match framer.next(framing, &mut received, true) {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(why) => return (found, Err(why)),
            }
        }
    }
    let rest = framer.rest(framing, &mut received);
    (found, Ok(rest))
}

fn texts(framing: &Framing, pieces: &[&str]) -> (Vec<String>, String) {
    let pieces: Vec<_> = pieces.iter().map(|it| it.as_bytes()).collect();
    let (found, rest) = messages(framing, 1000, &pieces);
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let rest = rest.unwrap().unwrap_or_default();
    (found.into_iter().map(text).collect(), text(rest))
}

fn field(offset: usize, bytes: usize, order: ByteOrder, extra: i64) -> Framing {
    Framing::Length(LengthField {
        offset,
        bytes,
        order,
        extra,
    })
}

#[test]
fn a_chunk_that_ends_with_the_delimiter_is_a_message_whatever_is_inside() {
    let framing = Framing::Chunk(b"\r\n".to_vec());
    for (pieces, found, rest) in [
        (&["a\r\n"][..], &["a\r\n"][..], ""),
        (&["NOOP\r\nQUIT\r\n"], &["NOOP\r\nQUIT\r\n"], ""),
        (&["a\r\nb", "c\r\n"], &["a\r\nbc\r\n"], ""),
        // RoadRunner finds neither of these.
        (&["a\r", "\n"], &["a\r\n"], ""),
        (&["a", "\r", "\n", "b"], &["a\r\n"], "b"),
        (&[""], &[], ""),
    ] {
        let (messages, left) = texts(&framing, pieces);
        assert_eq!(
            (&messages[..], &*left),
            (
                &found.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                rest
            ),
            "{pieces:?}"
        );
    }
}

#[test]
fn a_message_ends_with_its_delimiter_line_or_length() {
    let delimiter = Framing::Delimiter(b"--".to_vec());
    let (found, rest) = texts(&delimiter, &["a--b-", "-c-", "--d"]);
    assert_eq!(found, ["a--", "b--", "c--"]);
    assert_eq!(rest, "-d");
    let (found, rest) = texts(&Framing::Line, &["a\r\n\n", "b\r", "\nc\rd\ne"]);
    assert_eq!(found, ["a", "", "b", "c\rd"]);
    assert_eq!(rest, "e");
    let (found, _) = texts(&Framing::None, &["a", "", "bc"]);
    assert_eq!(found, ["a", "bc"]);
    // Four bytes, the length, the data, four bytes of a check sum.
    let tracker = field(4, 4, ByteOrder::Big, 4);
    let stream = [&[0, 0, 0, 0, 0, 0, 0, 2, 8, 9, 1, 1, 1, 1, 0][..]];
    let (found, rest) = messages(&tracker, 100, &stream);
    assert_eq!(found, [&stream[0][..14]]);
    assert_eq!(rest, Ok(None), "half a message is none");
    // The length of all of it, the other way round.
    let whole = field(0, 2, ByteOrder::Little, -2);
    let (found, _) = messages(&whole, 100, &[&[3, 0, 7, 2, 0]]);
    assert_eq!(found, [&[3, 0, 7][..], &[2, 0]]);
}

#[test]
fn what_is_too_long_or_makes_no_sense_ends_the_connection() {
    let many = [b'x'; 20];
    for framing in [
        Framing::Chunk(b"\n".to_vec()),
        Framing::Delimiter(b"\n".to_vec()),
        Framing::Line,
        field(0, 1, ByteOrder::Big, 0),
    ] {
        let (found, end) = messages(&framing, 10, &[&many]);
        assert_eq!(
            (found.len(), end),
            (0, Err(BadMessage::TooLong(10))),
            "{framing:?}"
        );
    }
    let whole = field(0, 2, ByteOrder::Big, -2);
    let (_, end) = messages(&whole, 10, &[&[0, 1]]);
    assert_eq!(end, Err(BadMessage::Length(1)));
    let huge = field(0, 8, ByteOrder::Big, i64::MAX);
    let (_, end) = messages(&huge, 10, &[&[0xff; 8]]);
    assert_eq!(end, Err(BadMessage::TooLong(10)));
    let exact = Framing::Delimiter(b"\r\n".to_vec());
    let (found, _) = messages(&exact, 4, &[b"ab\r\nab\r", b"\n"]);
    assert_eq!(found, [&b"ab\r\n"[..], b"ab\r\n"]);
}

fn framings() -> impl Strategy<Value = Framing> {
    let order = prop_oneof![Just(ByteOrder::Big), Just(ByteOrder::Little)];
    let width = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8)];
    let length = (0_usize..4, width, order, -4_i64..4);
    prop_oneof![
        "[ab]{1,3}".prop_map(|it| Framing::Delimiter(it.into_bytes())),
        Just(Framing::Line),
        length.prop_map(|(offset, bytes, order, extra)| field(offset, bytes, order, extra)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_does_not_matter_how_the_bytes_arrive(
        framing in framings(),
        stream in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\n'), Just(b'\r'), 0_u8..3], 0..60),
        cuts in prop::collection::vec(0_usize..60, 0..8),
        most in 1_usize..40,
    ) {
        let whole = messages(&framing, most, &[&stream]);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        prop_assert_eq!(&messages(&framing, most, &pieces), &whole);
        let bytes: Vec<_> = stream.chunks(1).collect();
        prop_assert_eq!(&messages(&framing, most, &bytes), &whole);
    }

    #[test]
    fn chunks_lose_nothing(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'a'), Just(b'\r'), Just(b'\n')], 0..6), 0..12),
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(|it| &it[..]).collect();
        let framing = Framing::Chunk(b"\r\n".to_vec());
        let (found, rest) = messages(&framing, 1000, &pieces);
        for message in &found {
            prop_assert!(message.ends_with(b"\r\n"));
        }
        let mut all: Vec<u8> = found.concat();
        all.extend(rest.unwrap().unwrap_or_default());
        prop_assert_eq!(all, pieces.concat());
    }

    #[test]
    fn any_bytes_are_taken(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_framing(&data);
    }
}
