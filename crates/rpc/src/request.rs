//! Frames of calls: bytes to a call, or what is wrong with them. Does no I/O.

use bytes::{Bytes, BytesMut};
use pronghorn_wire::frame::{Flags, FrameError, Header};
use thiserror::Error;

/// The longest payload that is taken. A job or a cached value is far below it, and it is what one
/// call may make the server hold.
pub const MAX_PAYLOAD: u32 = 64 << 20;
/// The longest name of a method. None that exists has half of it, and errors repeat it.
pub const MAX_METHOD: usize = 255;

/// The start of a frame: its payload may still be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    flags: Flags,
    sequence: u32,
    /// Bytes of the method's name, at most as many as the payload has.
    method: usize,
    /// Bytes of header and payload.
    header: usize,
    payload: u32,
}

/// A call as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: Flags,
    /// The caller's number for it.
    pub(crate) sequence: u32,
    pub(crate) method: Bytes,
    pub(crate) argument: Bytes,
}

/// The caller's: a frame that is no call. Nothing behind it can be believed either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(
        "a call has 2 options, its number and the length of the method's name; this frame has {0}"
    )]
    Options(usize),
    #[error("a name of {0} bytes, methods have at most {MAX_METHOD}")]
    MethodTooLong(u32),
    #[error("a name of {method} bytes in a payload of {payload}")]
    MethodBeyondPayload { method: u32, payload: u32 },
}

impl Head {
    /// Reads the head from the start of `input`; `None` when more bytes are needed.
    pub(crate) fn decode(input: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(header) = Header::decode(input, MAX_PAYLOAD)? else {
            return Ok(None);
        };
        let &[sequence, method] = header.options.as_slice() else {
            return Err(Malformed::Options(header.options.as_slice().len()));
        };
        let payload = header.payload;
        if method > payload {
            return Err(Malformed::MethodBeyondPayload { method, payload });
        }
        match usize::try_from(method) {
            Ok(length) if length <= MAX_METHOD => Ok(Some(Self {
                flags: header.flags,
                sequence,
                method: length,
                header: header.len(),
                payload,
            })),
            _ => Err(Malformed::MethodTooLong(method)),
        }
    }

    pub(crate) fn payload(&self) -> u32 {
        self.payload
    }

    /// Bytes of the whole frame.
    pub(crate) fn frame(&self) -> usize {
        self.header + self.payload as usize
    }

    /// Takes the frame off the start of `input`; `None` when it is not all there.
    pub(crate) fn take(self, input: &mut BytesMut) -> Option<Request> {
        if input.len() < self.frame() {
            return None;
        }
        let mut method = input.split_to(self.frame()).freeze().split_off(self.header);
        let argument = method.split_off(self.method);
        Some(Request {
            flags: self.flags,
            sequence: self.sequence,
            method,
            argument,
        })
    }
}

/// Fuzz entry: calls are taken off `data` until it is none; each one, written again, gives the
/// bytes that it was read from.
#[doc(hidden)]
pub fn fuzz_request(data: &[u8]) {
    let mut input = BytesMut::from(data);
    while let Ok(Some(head)) = Head::decode(&input) {
        let before = input.clone();
        let Some(call) = head.take(&mut input) else {
            return;
        };
        assert!(call.method.len() <= MAX_METHOD && call.argument.len() <= MAX_PAYLOAD as usize);
        let mut again = Vec::new();
        crate::reply::frame(
            &mut again,
            call.flags,
            call.sequence,
            &call.method,
            call.argument.len(),
        )
        .expect("what was read is not too long");
        again.extend_from_slice(&call.argument);
        let read = before.len() - input.len();
        // Bytes 10 and 11 say nothing in a call and are written as 0.
        let same = |(at, (a, b)): (usize, (&u8, &u8))| a == b || matches!(at, 10 | 11);
        assert_eq!(again.len(), read, "nothing is left over or made up");
        assert!(again.iter().zip(&before).enumerate().all(same));
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_wire::frame::{Options, Stream};
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u8, options: &[u32], payload: u32) -> Vec<u8> {
        let mut out = Vec::new();
        Header {
            flags: Flags(flags),
            stream: Stream::END,
            options: Options::new(options),
            payload,
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn a_call_is_taken_apart_and_what_follows_stays() {
        let mut frame = header(0x08, &[7, 5], 9);
        frame.extend_from_slice(b"a.Btruenext");
        for cut in 0..20 {
            assert_eq!(Head::decode(&frame[..cut]), Ok(None), "cut to {cut} bytes");
        }
        let head = Head::decode(&frame).unwrap().unwrap();
        assert_eq!((head.frame(), head.payload()), (29, 9));
        let mut part = BytesMut::from(&frame[..28]);
        assert_eq!(head.take(&mut part), None);
        assert_eq!(part.len(), 28, "nothing is lost");

        let mut all = BytesMut::from(&frame[..]);
        let call = head.take(&mut all).unwrap();
        assert_eq!((call.flags, call.sequence), (Flags::JSON, 7));
        assert_eq!(
            (&call.method[..], &call.argument[..]),
            (&b"a.Btr"[..], &b"uene"[..])
        );
        assert_eq!(&all[..], b"xt");
    }

    #[test]
    fn a_frame_that_is_no_call_is_refused_before_its_payload_comes() {
        let refused = |options: &[u32], payload| Head::decode(&header(0x08, options, payload));
        assert_eq!(refused(&[], 4), Err(Malformed::Options(0)));
        assert_eq!(refused(&[1], 4), Err(Malformed::Options(1)));
        assert_eq!(refused(&[1, 4, 9], 4), Err(Malformed::Options(3)));
        let beyond = Malformed::MethodBeyondPayload {
            method: 5,
            payload: 4,
        };
        assert_eq!(refused(&[1, 5], 4), Err(beyond));
        assert_eq!(refused(&[1, 256], 300), Err(Malformed::MethodTooLong(256)));
        let limit = MAX_PAYLOAD;
        let too_long = FrameError::TooLong {
            announced: limit + 1,
            limit,
        };
        assert_eq!(refused(&[1, 4], limit + 1), Err(Malformed::Frame(too_long)));
        assert!(refused(&[1, 4], limit).is_ok());
        assert!(refused(&[u32::MAX, 255], 255).is_ok());
        assert!(refused(&[1, 0], 0).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_it_panic(data in prop::collection::vec(any::<u8>(), 0..60)) {
            fuzz_request(&data);
        }

        /// Random bytes hardly ever have the right check sum, so these are given it.
        #[test]
        fn no_frames_make_it_panic(
            frames in prop::collection::vec(
                (any::<u8>(), prop::collection::vec(prop_oneof![0..300u32, any::<u32>()], 0..4), 0..300u32,
                    prop::collection::vec(any::<u8>(), 0..300)),
                0..4,
            ),
        ) {
            let mut data = Vec::new();
            for (flags, options, payload, bytes) in frames {
                data.extend(header(flags, &options, payload));
                data.extend(bytes);
            }
            fuzz_request(&data);
        }

        #[test]
        fn whatever_is_written_is_read(
            flags: u8, sequence: u32, method in prop::collection::vec(any::<u8>(), 0..=MAX_METHOD),
            argument in prop::collection::vec(any::<u8>(), 0..300), more in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            let mut bytes = BytesMut::new();
            let mut head = Vec::new();
            crate::reply::frame(&mut head, Flags(flags), sequence, &method, argument.len()).unwrap();
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(&argument);
            bytes.extend_from_slice(&more);
            fuzz_request(&bytes);
            let call = Head::decode(&bytes).unwrap().unwrap().take(&mut bytes).unwrap();
            let expected = Request { flags: Flags(flags), sequence, method: method.into(), argument: argument.into() };
            prop_assert_eq!(call, expected);
            prop_assert_eq!(&bytes[..], &more[..]);
        }
    }
}
