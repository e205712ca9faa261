//! Frames of replies.

use bytes::Bytes;
use pronghorn_plugin_api::rpc::Failure;
use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, Options, Stream};

use crate::codec::Codec;

/// What a reply repeats of its call.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) codec: Codec,
    pub(crate) sequence: u32,
    pub(crate) method: Bytes,
}

/// A reply's two parts, to be sent one behind the other.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn to(caller: &Caller, result: Result<Bytes, Failure>) -> Self {
        match result {
            Ok(body) => Self::with(caller, Flags::NONE, body).unwrap_or_else(|| {
                let text = "the result is longer than a reply can be";
                Self::failure(caller, text.to_owned())
            }),
            Err(failure) => Self::failure(caller, failure.to_string()),
        }
    }

    fn failure(caller: &Caller, text: String) -> Self {
        Self::with(caller, Flags::ERROR, text.into()).expect("a text is shorter than that")
    }

    fn with(caller: &Caller, flags: Flags, body: Bytes) -> Option<Self> {
        let flags = caller.codec.flags().with(flags);
        let mut head = Vec::new();
        frame(
            &mut head,
            flags,
            caller.sequence,
            &caller.method,
            body.len(),
        )?;
        Some(Self { head, body })
    }
}

/// Header and method of a call or a reply; `body` more bytes follow. `None` when they would be too
/// many.
pub(crate) fn frame(
    out: &mut Vec<u8>,
    flags: Flags,
    sequence: u32,
    method: &[u8],
    body: usize,
) -> Option<()> {
    let payload = u32::try_from(method.len().checked_add(body)?).ok()?;
    if payload > MAX_PAYLOAD {
        return None;
    }
    let length = u32::try_from(method.len()).ok()?;
    Header {
        flags,
        stream: Stream::END,
        options: Options::new(&[sequence, length]),
        payload,
    }
    .encode(out);
    out.extend_from_slice(method);
    Some(())
}
