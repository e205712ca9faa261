//! Which codec a call is in.

use pronghorn_plugin_api::rpc::{Encoding, Failure};
use pronghorn_wire::frame::Flags;

/// In the order in which they count when a frame has several bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Protobuf,
    Json,
    Raw,
    MessagePack,
    Gob,
    /// No bit that says one.
    None,
}

impl Codec {
    pub(crate) fn of(flags: Flags) -> Self {
        let known = [
            Self::Protobuf,
            Self::Json,
            Self::Raw,
            Self::MessagePack,
            Self::Gob,
        ];
        let is_set = |codec: &Self| flags.has(codec.flags());
        known.into_iter().find(is_set).unwrap_or(Self::None)
    }

    /// Of a reply: the one codec that the call was taken for. What says none is answered as Go's
    /// own.
    pub(crate) fn flags(self) -> Flags {
        match self {
            Self::Protobuf => Flags::PROTO,
            Self::Json => Flags::JSON,
            Self::Raw => Flags::RAW,
            Self::MessagePack => Flags::MSGPACK,
            Self::Gob | Self::None => Flags::GOB,
        }
    }

    /// The failure is for the caller.
    pub(crate) fn encoding(self) -> Result<Encoding, Failure> {
        match self {
            Self::Protobuf => Ok(Encoding::Protobuf),
            Self::Json => Ok(Encoding::Json),
            Self::Raw => Ok(Encoding::Raw),
            Self::MessagePack => Ok(Encoding::MessagePack),
            Self::Gob => Err(Failure::new(
                "calls in Go's gob are not answered; call with JSON, MessagePack, protobuf or raw bytes",
            )),
            // RoadRunner's text.
            Self::None => Err(Failure::new(
                "goridge_read_request_body: unknown decoder used in frame",
            )),
        }
    }
}

impl From<Encoding> for Codec {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Protobuf => Self::Protobuf,
            Encoding::Json => Self::Json,
            Encoding::Raw => Self::Raw,
            Encoding::MessagePack => Self::MessagePack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_codecs_the_first_in_order_counts() {
        for (bits, codec) in [
            (0xff, Codec::Protobuf),
            (0xa0, Codec::Protobuf),
            (0x7f, Codec::Json),
            (0x37, Codec::Raw),
            (0x33, Codec::MessagePack),
            (0x23, Codec::Gob),
            (0x00, Codec::None),
            (0x43, Codec::None),
        ] {
            assert_eq!(Codec::of(Flags(bits)), codec, "{bits:02x}");
        }
        assert_eq!(Codec::None.flags(), Flags::GOB);
    }
}
