use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    frames: Vec<Good>,
    broken: Vec<Broken>,
}

#[derive(Deserialize)]
struct Good {
    name: String,
    hex: String,
    flags: u8,
    stream: u8,
    options: Vec<u32>,
    payload_hex: String,
}

#[derive(Deserialize)]
struct Broken {
    name: String,
    hex: String,
    error: String,
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).unwrap();
    let pair = |pair: &[u8]| u8::try_from(digit(&pair[0]) * 16 + digit(&pair[1])).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../../vectors/goridge.json")).unwrap()
}

#[test]
fn every_frame_of_the_vectors_decodes_and_encodes() {
    for vector in vectors().frames {
        let (all, payload) = (bytes(&vector.hex), bytes(&vector.payload_hex));
        let header = Header {
            flags: Flags(vector.flags),
            stream: Stream(vector.stream),
            options: Options::new(&vector.options),
            payload: u32::try_from(payload.len()).unwrap(),
        };
        assert_eq!(
            Header::decode(&all, MAX_PAYLOAD),
            Ok(Some(header)),
            "{}",
            vector.name
        );
        assert_eq!(&all[header.len()..], payload, "{}", vector.name);
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, all[..header.len()], "{}", vector.name);
        for cut in 0..header.len() {
            let part = Header::decode(&all[..cut], MAX_PAYLOAD);
            assert_eq!(part, Ok(None), "{} cut to {cut} bytes", vector.name);
        }
    }
}

#[test]
fn every_broken_frame_of_the_vectors_is_refused_with_its_reason() {
    for vector in vectors().broken {
        let error = Header::decode(&bytes(&vector.hex), MAX_PAYLOAD).expect_err(&vector.name);
        let kind = match error {
            FrameError::Crc { .. } => "crc",
            FrameError::Version(_) => "version",
            FrameError::HeaderLength(_) => "header-length",
            FrameError::TooLong { .. } => "too-long",
        };
        assert_eq!(kind, vector.error, "{}", vector.name);
    }
}

#[test]
fn an_open_frame_counts_its_context_and_the_body_that_follows() {
    let mut out = b"before".to_vec();
    let open = OpenFrame::begin(&mut out);
    out.extend_from_slice(b"context");
    open.finish(&mut out, Flags::NATIVE, Stream::MORE, 5)
        .unwrap();
    let header = Header::decode(&out[6..], MAX_PAYLOAD).unwrap().unwrap();
    assert_eq!(header.options.as_slice(), [7]);
    assert_eq!(
        (header.payload, header.flags, header.stream),
        (12, Flags::NATIVE, Stream::MORE)
    );
}

#[test]
fn a_frame_that_would_be_too_long_leaves_nothing_behind() {
    let mut out = b"before".to_vec();
    let open = OpenFrame::begin(&mut out);
    out.push(b'c');
    let refused = open.finish(&mut out, Flags::JSON, Stream::END, MAX_PAYLOAD as usize);
    assert_eq!(
        refused,
        Err(FrameError::TooLong {
            announced: MAX_PAYLOAD + 1,
            limit: MAX_PAYLOAD
        })
    );
    assert_eq!(out, b"before");
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_itself(
        flags: u8, stream: u8, words in prop::collection::vec(any::<u32>(), 0..=MAX_OPTIONS), payload in 0..=MAX_PAYLOAD,
    ) {
        let header = Header { flags: Flags(flags), stream: Stream(stream), options: Options::new(&words), payload };
        let mut out = Vec::new();
        header.encode(&mut out);
        prop_assert_eq!(Header::decode(&out, MAX_PAYLOAD), Ok(Some(header)));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(data in prop::collection::vec(any::<u8>(), 0..80)) {
        fuzz_header(&data);
    }
}
