use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::flood::PREFACE;
use super::super::inlet::{Inlet, Stop};
use super::*;
use crate::huffman::encode;

/// More than any test of what a field is has.
const MANY: Most = Most::of_request(1000);

fn judged(block: &[u8]) -> Judged {
    Blocks::default().judge(block, MANY)
}

fn field(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut field = vec![first];
    append_string(&mut field, name);
    append_string(&mut field, value);
    field
}

/// A literal whose name is that of a field of a table.
fn of_index(first: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![first];
    append_string(&mut field, value);
    field
}

#[test]
fn each_fault_is_found_and_told() {
    let cases = [
        (field(0, b"x-a", b"a\rb"), Fault::Value),
        (field(0, b"x-a", b"a\0"), Fault::Value),
        (field(0, b"x-a", b"\n"), Fault::Value),
        (field(0, b"x-a", b"\x0c"), Fault::Value),
        (field(0, b"x-a", b"\x7f"), Fault::Value),
        (field(0x10, b"x-a", b"\x01"), Fault::Value),
        (field(0x40, b"x-a", b"\x1f"), Fault::Value),
        (field(0, b"X-a", b"b"), Fault::Name),
        (field(0, b"x a", b"b"), Fault::Name),
        (field(0, b"x\xe9", b"b"), Fault::Name),
        (field(0, b"", b"b"), Fault::Name),
        (field(0, b"a:", b"b"), Fault::Name),
        (field(0, b"connection", b"close"), Fault::Connection),
        (field(0, b"keep-alive", b"1"), Fault::Connection),
        (
            field(0, b"transfer-encoding", b"chunked"),
            Fault::Connection,
        ),
        (field(0, b"te", b"gzip"), Fault::Connection),
        (vec![0xb9], Fault::Connection),
        (field(0, b":other", b"a"), Fault::Pseudo),
        (field(0, b":", b"a"), Fault::Pseudo),
        (field(0, b":protocol", b"websocket"), Fault::Pseudo),
        (vec![0x88], Fault::Pseudo),
        (of_index(4, b"/caf\xe9"), Fault::Value),
        (of_index(4, b"/a b"), Fault::Value),
        (of_index(4, b"/a\n"), Fault::Value),
        (of_index(4, b"a"), Fault::Value),
        (of_index(4, b""), Fault::Value),
        (of_index(1, b"a b"), Fault::Value),
        (of_index(1, b"a\xff"), Fault::Value),
        (of_index(2, b""), Fault::Value),
        (of_index(2, b"G T"), Fault::Value),
        (of_index(6, b"ht tp"), Fault::Value),
        (of_index(6, b"ftp"), Fault::Value),
        (of_index(6, b"httpx"), Fault::Value),
        (of_index(6, b""), Fault::Value),
    ];
    for (block, expected) in cases {
        match judged(&block) {
            Judged::Mended(fault, _) => assert_eq!(fault, expected, "{block:?}"),
            other => panic!("{block:?}: {other:?}"),
        }
    }
}

#[test]
fn what_is_well_formed_is_good() {
    let good = [
        vec![0x82, 0x86, 0x84],
        of_index(4, "/caf%C3%A9?q=a|b^c".as_bytes()),
        of_index(4, "/café".as_bytes()),
        of_index(4, b"*"),
        of_index(1, b"[::1]:8080"),
        of_index(1, b"user@example.com:80"),
        of_index(2, b"PROPFIND"),
        field(0, b"te", b"trailers"),
        field(0x10, b"x-a", b"a\tb \xe9"),
        field(0, b"x-a", b""),
        vec![0x20, 0x3f, 0xe1, 0x1f, 0x82], // the table's size: 0, then 4096
    ];
    for block in good {
        assert_eq!(judged(&block), Judged::Good, "{block:?}");
    }
}

#[test]
fn what_is_not_hpack_is_left_to_h2() {
    let broken: [&[u8]; 9] = [
        &[0x80],
        &[0xbe],
        &[0xff],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x00, 0x05, b'a'],
        &[0x00, 0x01, b'a'],
        &[0x00, 0x84, 0xff, 0xff, 0xff, 0xff, 0x00],
        &[0x3f, 0xe2, 0x1f],
        &[0x82, 0x20],
    ];
    for block in broken {
        assert_eq!(judged(block), Judged::Broken, "{block:?}");
    }
}

#[test]
fn few_octets_do_not_become_many() {
    // A name of 4,000 capitals, kept; then again and again a field of that name.
    let mut block = field(0x40, &[b'A'; 4000], b"");
    for _ in 0..50_000 {
        block.extend([0x7e, 0]);
    }
    assert_eq!(judged(&block), Judged::Broken);
}

/// Ways to write a field of one octet or two, and whether the table keeps it.
const SHORT: [(&[u8], bool); 4] = [
    (&[0x90], false),          // accept-encoding: gzip, deflate
    (&[0x1f, 0, 0], false),    // accept-charset, empty
    (&[0x40 | 0x13, 0], true), // accept, empty
    (&[0xa0], false),          // cookie, empty
];

#[test]
fn of_too_many_fields_those_that_are_needed_later_are_left() {
    let most = Most {
        fields: 4,
        crumbs: 3,
    };
    let judged = |block: &[u8]| Blocks::default().judge(block, most);
    for (field, is_kept) in SHORT {
        let is_cookie = field == [0xa0];
        let fit = if is_cookie { 3 } else { 4 };
        let begin = [0x82, 0x86, 0x84];
        let block = |count| [&begin[..], &field.repeat(count)].concat();
        assert_eq!(judged(&block(fit)), Judged::Good, "{field:?}");
        let left = if is_kept { block(fit + 9) } else { block(fit) };
        let expected = Judged::Mended(Fault::TooMany, left);
        assert_eq!(judged(&block(fit + 9)), expected, "{field:?}");
        // Whatever else is wrong with it, it is malformed.
        let malformed = [&block(fit + 9)[..], b"\x00\x01A\x01b"].concat();
        let found = judged(&malformed);
        assert!(matches!(found, Judged::Mended(Fault::Name, _)), "{found:?}");
    }
}

#[test]
fn fields_that_only_the_table_needs_end_the_connection() {
    let short = [0x40 | 0x13, 0].repeat(20 + KEPT);
    let most = Most::of_request(20);
    let judged = |block: &[u8]| Blocks::default().judge(block, most);
    assert!(matches!(judged(&short), Judged::Mended(Fault::TooMany, _)));
    assert_eq!(
        judged(&[&short[..], &[0x40 | 0x13, 0]].concat()),
        Judged::Flood
    );
    let long = of_index(0x40 | 0x13, &[b'v'; TABLE]).repeat(23);
    assert_eq!(judged(&long), Judged::Flood);
}

#[test]
fn trailers_are_left_out_as_far_as_the_table_allows() {
    let mut blocks = Blocks::default();
    let kept = field(0x40, b"x-sum", b"1");
    let block = [&kept[..], &field(0, b"x-other", b"2")[..], &[0xbe][..]].concat();
    let judged = blocks.judge(&block, Most::of_trailers());
    assert_eq!(judged, Judged::Mended(Fault::TooMany, kept));
    assert_eq!(blocks.judge(&[0xbe], MANY), Judged::Good);
}

/// A field's name and value.
type Written = (Vec<u8>, Vec<u8>);

/// A client that knows no rule, with its table.
#[derive(Default)]
struct Client {
    table: VecDeque<Written>,
}

impl Client {
    fn keep(&mut self, name: &[u8], value: &[u8]) {
        // No later value makes a name good that stood for something else in `h2`'s table.
        let name = if is_good(name, value) || name != b"te" {
            name
        } else {
            b"TE"
        };
        self.table.push_front((name.to_vec(), value.to_vec()));
        while self.size() > TABLE {
            self.table.pop_back();
        }
    }

    fn size(&self) -> usize {
        let sizes = self
            .table
            .iter()
            .map(|(name, value)| name.len() + value.len() + OVERHEAD);
        sizes.sum()
    }
}

#[derive(Debug, Clone)]
enum Write {
    Literal(usize, usize, bool, bool),
    Again(Index),
    OtherValue(Index, usize, bool),
}

const NAMES: [&str; 8] = ["x-a", "x-b", "A", "connection", "te", "a b", "x_c", "x"];

fn value(which: usize) -> Vec<u8> {
    match which {
        0 => b"v".to_vec(),
        1 => b"a\rb".to_vec(),
        2 => b"trailers".to_vec(),
        3 => b"".to_vec(),
        4 => b"\x7f".to_vec(),
        5 => vec![b'v'; 900],
        6 => vec![1; 1500],
        7 => vec![b'v'; 5000],
        8 => vec![b'\n'; 4096],
        _ => b"\xe9t\xe9".to_vec(),
    }
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        (0..NAMES.len(), 0_usize..10, any::<bool>(), any::<bool>())
            .prop_map(|(name, value, kept, coded)| Write::Literal(name, value, kept, coded)),
        any::<Index>().prop_map(Write::Again),
        (any::<Index>(), 0_usize..10, any::<bool>())
            .prop_map(|(of, value, kept)| Write::OtherValue(of, value, kept)),
    ]
}

/// The judgement of `http`, and what RFC 9113, section 8.2.2, adds.
fn is_good(name: &[u8], value: &[u8]) -> bool {
    HeaderName::from_lowercase(name).is_ok()
        && HeaderValue::from_bytes(value).is_ok()
        && name != b"connection"
        && (name != b"te" || value == b"trailers")
}

fn append_integer(to: &mut Vec<u8>, first: u8, prefix: u32, number: usize) {
    let most = (1 << prefix) - 1;
    let low = |number: usize| number.to_le_bytes()[0];
    to.push(first | low(number.min(most)));
    if let Some(mut rest) = number.checked_sub(most) {
        while rest >= 0x80 {
            to.push(low(rest) | 0x80);
            rest >>= 7;
        }
        to.push(low(rest));
    }
}

/// A block, and the fields in it.
fn block_of(client: &mut Client, writes: &[Write]) -> (Vec<u8>, Vec<Written>) {
    let mut block = vec![0x82, 0x86, 0x84, 0x01, 1, b'a'];
    let mut fields = Vec::new();
    for write in writes {
        match write {
            Write::Literal(name, which, kept, coded) => {
                let (name, value) = (NAMES[*name].as_bytes(), value(*which));
                block.push(if *kept { 0x40 } else { 0 });
                for text in [name, &value] {
                    if *coded {
                        let text = encode(text);
                        append_integer(&mut block, 0x80, 7, text.len());
                        block.extend(text);
                    } else {
                        append_string(&mut block, text);
                    }
                }
                if *kept {
                    client.keep(name, &value);
                }
                fields.push((name.to_vec(), value));
            }
            Write::Again(_) | Write::OtherValue(..) if client.table.is_empty() => {}
            Write::Again(of) => {
                let of = of.index(client.table.len());
                append_integer(&mut block, 0x80, 7, STATIC.len() + 1 + of);
                fields.push(client.table[of].clone());
            }
            Write::OtherValue(of, which, kept) => {
                let of = of.index(client.table.len());
                let (name, value) = (client.table[of].0.clone(), value(*which));
                let (first, prefix) = if *kept { (0x40, 6) } else { (0x10, 4) };
                append_integer(&mut block, first, prefix, STATIC.len() + 1 + of);
                append_string(&mut block, &value);
                if *kept {
                    client.keep(&name, &value);
                }
                fields.push((name, value));
            }
        }
    }
    (block, fields)
}

fn frames_of(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let pieces = block.chunks(10_000).count();
    for (nth, piece) in block.chunks(10_000).enumerate() {
        let [.., a, b, c] = piece.len().to_be_bytes();
        let kind = if nth == 0 { 1 } else { 9 };
        let flags = u8::from(nth == 0) | if nth + 1 == pieces { 4 } else { 0 };
        frames.extend([a, b, c, kind, flags]);
        frames.extend(stream.to_be_bytes());
        frames.extend(piece);
    }
    frames
}

/// A client's bytes as `h2` reads them: the fields of each request, until it ends the connection.
async fn seen(bytes: Vec<u8>, most: usize) -> Vec<(u32, HeaderMap)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (mut reader, mut writer) = tokio::io::split(ours);
    let send = async { _ = writer.write_all(&bytes).await }; // it may have ended
    let drain = async { _ = reader.read_to_end(&mut Vec::new()).await };
    let serve = async {
        let mut builder = h2::server::Builder::new();
        builder.max_header_list_size(128 << 10);
        let mut connection = builder.handshake::<_, Bytes>(theirs).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < most
            && let Some(Ok((request, respond))) = connection.accept().await
        {
            let fields = request.headers().clone();
            seen.push((respond.stream_id().as_u32(), fields));
        }
        seen
    };
    tokio::join!(serve, send, drain).0
}

proptest! {
    /// The table of `h2` stays that of the client: what comes behind malformed requests is read
    /// right.
    #[test]
    fn h2_reads_on_behind_malformed_requests(
        requests in proptest::collection::vec(proptest::collection::vec(write(), 0..6), 1..12),
    ) {
        let mut client = Client::default();
        let mut inlet = Inlet::new(128 << 10, 5);
        let mut bytes = PREFACE.to_vec();
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        let mut sent = Vec::new();
        for (number, writes) in requests.iter().enumerate() {
            let stream = u32::try_from(2 * number + 1).unwrap();
            let (block, fields) = block_of(&mut client, writes);
            bytes.extend(frames_of(stream, &block));
            sent.push((stream, fields));
        }
        let mut given = Vec::new();
        loop {
            let (passed, stop) = inlet.take(&bytes);
            given.extend(bytes.drain(..passed));
            let Stop::Instead(length, instead) = stop else { break };
            bytes.drain(..length);
            given.extend(instead);
        }
        prop_assert!(bytes.is_empty());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seen = runtime.block_on(seen(given, sent.len()));
        prop_assert_eq!(seen.len(), sent.len());
        for ((stream, fields), (expected_stream, expected)) in seen.iter().zip(&sent) {
            prop_assert_eq!(stream, expected_stream);
            let good = expected.iter().all(|(name, value)| is_good(name, value));
            let names = expected.iter().map(|(name, _)| name);
            let is_short = names.filter(|name| !name.starts_with(b":")).count() <= 5;
            prop_assert_eq!(!fields.contains_key(MARK), good && is_short, "{:?}", expected);
            if good && is_short {
                let mut wanted = HeaderMap::new();
                for (name, value) in expected {
                    wanted.append(HeaderName::from_bytes(name).unwrap(), HeaderValue::from_bytes(value).unwrap());
                }
                prop_assert_eq!(fields, &wanted);
            }
        }
    }

    #[test]
    fn any_bytes_end_in_a_judgment(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..6)) {
        let mut judge = Blocks::default();
        for block in blocks {
            if matches!(judge.judge(&block, MANY), Judged::Broken | Judged::Flood) {
                break;
            }
            let entries = judge.table.iter().map(|entry| entry.size()).sum::<usize>();
            prop_assert!(entries == judge.size && judge.size <= TABLE - judge.less);
        }
    }
}

#[test]
fn the_newest_entry_of_a_block_stands_for_what_came_with_it() {
    let mut blocks = Blocks::default();
    let kept = field(0x40, b"x-a", b"b");
    let twice = [&kept[..], &kept].concat();
    assert_eq!(blocks.judge(&twice, MANY), Judged::Good);
    assert!(blocks.pin(1500));
    assert_eq!(blocks.judge(&field(0, b"x-a", b"b"), MANY), Judged::Good);
    assert!(!blocks.pin(200), "the table keeps nothing of it");
    assert_eq!(blocks.judge(&kept, MANY), Judged::Good);
    assert!(blocks.pin(1 << 20));
    assert_eq!(blocks.pinned(), 3000 + BUFFER, "no buffer is longer");
    // Room for two entries: the oldest one goes, and nothing with it.
    let two = 2 * (4 + OVERHEAD);
    let smaller = [0x3f, u8::try_from(two - 0x1f).expect("seven bits")];
    assert_eq!(blocks.judge(&smaller, MANY), Judged::Good);
    assert_eq!(blocks.pinned(), 3000 + BUFFER);
    let one = [0x3f, u8::try_from(4 + OVERHEAD - 0x1f).expect("seven bits")];
    assert_eq!(blocks.judge(&one, MANY), Judged::Good);
    assert_eq!(blocks.pinned(), BUFFER);
    assert_eq!(blocks.judge(&[0x20], MANY), Judged::Good);
    assert_eq!(blocks.pinned(), 0);
}
