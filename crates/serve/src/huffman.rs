//! The Huffman code of HPACK and QPACK (RFC 7541, section 5.2 and appendix B), decoding only.

/// The length of each octet's code, and of the end's, in bits. The code is canonical: its words
/// follow from these.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The longest word.
const LONGEST: usize = 30;
/// Words up to this length are found with one look; all characters of usual fields are among them.
const QUICK: u32 = 9;
/// The symbol that ends a string. It is never sent (RFC 7541, section 5.2).
const END: u16 = 256;

/// Not the code: a word for the end, or padding that is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoCode;

#[derive(Debug)]
struct Words {
    /// For each length: what lies above its words, aligned to the left of 32 bits.
    above: [u64; LONGEST + 1],
    /// Its first word, aligned the same way, and where that stands in `symbols`.
    first: [(u32, u16); LONGEST + 1],
    /// Symbols in the order of their words.
    symbols: [u16; 257],
    /// By the first bits: symbol and length; no length where the word is longer.
    quick: [(u8, u8); 1 << QUICK],
}

static WORDS: Words = words();

#[expect(
    clippy::cast_possible_truncation,
    reason = "words have 32 bits, and there are 257 symbols"
)]
const fn words() -> Words {
    let mut made = Words {
        above: [0; LONGEST + 1],
        first: [(0, 0); LONGEST + 1],
        symbols: [0; 257],
        quick: [(0, 0); 1 << QUICK],
    };
    let (mut word, mut placed, mut length) = (0_u64, 0_usize, 1_usize);
    while length <= LONGEST {
        let unit = 1_u64 << (32 - length);
        made.first[length] = (word as u32, placed as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                made.symbols[placed] = symbol as u16;
                placed += 1;
                if length <= QUICK as usize {
                    let from = (word >> (32 - QUICK)) as usize;
                    let mut at = 0;
                    while at < 1 << (QUICK as usize - length) {
                        made.quick[from + at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                word += unit;
            }
            symbol += 1;
        }
        made.above[length] = word;
        length += 1;
    }
    made
}

/// Appends what `coded` means to `text`, at most 8/5 of its length.
pub(crate) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Result<(), NoCode> {
    text.reserve(coded.len() * 8 / 5);
    let mut coded = coded.iter();
    let (mut bits, mut have) = (0_u64, 0_u32);
    loop {
        while have <= 32 {
            let Some(byte) = coded.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            have += 8;
        }
        if have == 0 {
            return Ok(());
        }
        // Missing bits are read as padding, ones.
        let aligned = bits << (64 - have) | u64::MAX >> have;
        let [a, b, c, d, ..] = aligned.to_be_bytes();
        let window = u32::from_be_bytes([a, b, c, d]);
        let (symbol, length) = word(window);
        if length > have {
            // Less than an octet of ones.
            let is_padding = have < 8 && window == u32::MAX;
            return if is_padding { Ok(()) } else { Err(NoCode) };
        }
        let Ok(byte) = u8::try_from(symbol) else {
            return Err(NoCode);
        };
        text.push(byte);
        have -= length;
    }
}

/// The first word of a window.
fn word(window: u32) -> (u16, u32) {
    let (symbol, length) = WORDS.quick[(window >> (32 - QUICK)) as usize];
    if length > 0 {
        return (symbol.into(), length.into());
    }
    for (length, above) in (0_u32..).zip(WORDS.above).skip(QUICK as usize + 1) {
        if u64::from(window) < above {
            let (first, place) = WORDS.first[length as usize];
            let nth = (window - first) >> (32 - length);
            return (WORDS.symbols[usize::from(place) + nth as usize], length);
        }
    }
    (END, 32) // not reached: the code is complete
}

#[cfg(test)]
pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = Vec::new();
    for byte in text {
        let length = LENGTHS[usize::from(*byte)];
        let (first, place) = WORDS.first[usize::from(length)];
        let nth = WORDS.symbols[usize::from(place)..]
            .iter()
            .position(|symbol| *symbol == u16::from(*byte))
            .unwrap();
        let word = (first >> (32 - u32::from(length))) + u32::try_from(nth).unwrap();
        bits.extend((0..length).rev().map(|bit| word >> bit & 1 == 1));
    }
    bits.resize(bits.len().next_multiple_of(8), true);
    let octet = |bits: &[bool]| {
        bits.iter()
            .fold(0, |octet, bit| octet << 1 | u8::from(*bit))
    };
    bits.chunks(8).map(octet).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, NoCode> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let cases: [(&[u8], &[u8]); 4] = [
            (
                b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                b"www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", b"no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", b"custom-value"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                b"Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (coded, text) in cases {
            assert_eq!(decoded(coded).unwrap(), text);
            assert_eq!(encode(text), coded);
        }
    }

    #[test]
    fn the_end_and_long_padding_are_refused() {
        assert_eq!(decoded(&[0xff; 4]), Err(NoCode));
        assert_eq!(decoded(&[0xf8, 0xff]), Err(NoCode), "a whole octet of ones");
        assert_eq!(decoded(&[0b0001_1000]), Err(NoCode), "zeros behind `a`");
        assert_eq!(decoded(&[0b0001_1111]).unwrap(), b"a");
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    proptest! {
        #[test]
        fn each_text_comes_back(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decoded(&encode(&text)).unwrap(), text);
        }

        #[test]
        fn any_bytes_end_in_a_text_or_an_error(coded in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(text) = decoded(&coded) {
                prop_assert!(text.len() <= coded.len() * 8 / 5);
                prop_assert_eq!(encode(&text), coded);
            }
        }
    }
}
