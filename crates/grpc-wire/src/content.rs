//! The content types of calls.

/// The beginning of all of them.
const GRPC: &str = "application/grpc";

/// The form in which messages and the status travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Over HTTP/2, with trailers.
    Grpc,
    /// gRPC-Web: trailers are the last message, over any version of HTTP.
    Web,
    /// gRPC-Web in base64, for clients that can't read bytes as they come.
    WebText,
}

/// A call's content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub flavour: Flavour,
}

impl Content {
    /// Reads the field. `None` when it is not gRPC of protobuf messages.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let field = std::str::from_utf8(field).ok()?;
        let lower = field.to_ascii_lowercase();
        let essence = lower.split(';').next().unwrap_or_default().trim();
        let rest = essence.strip_prefix(GRPC)?;
        let (flavour, suffix) = if let Some(rest) = rest.strip_prefix("-web-text") {
            (Flavour::WebText, rest)
        } else if let Some(rest) = rest.strip_prefix("-web") {
            (Flavour::Web, rest)
        } else {
            (Flavour::Grpc, rest)
        };
        matches!(suffix, "" | "+proto").then_some(Self { flavour })
    }

    /// Whether a field names gRPC, in a form that is spoken here or not.
    pub fn is_of_grpc(field: &[u8]) -> bool {
        let name = field.get(..GRPC.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(GRPC.as_bytes()))
    }

    /// Whether it is gRPC-Web, of either kind.
    pub fn is_web(self) -> bool {
        self.flavour != Flavour::Grpc
    }

    /// The type of a reply.
    pub const fn of_reply(self) -> &'static str {
        match self.flavour {
            Flavour::Grpc => "application/grpc",
            Flavour::Web => "application/grpc-web+proto",
            Flavour::WebText => "application/grpc-web-text+proto",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flavour_is_told_apart() {
        let read = |field: &str| Content::parse(field.as_bytes()).map(|content| content.flavour);
        assert_eq!(read("application/grpc"), Some(Flavour::Grpc));
        assert_eq!(read("application/grpc+proto"), Some(Flavour::Grpc));
        assert_eq!(read("Application/gRPC; x=y"), Some(Flavour::Grpc));
        assert_eq!(read("application/grpc-web"), Some(Flavour::Web));
        assert_eq!(read("application/grpc-web+proto"), Some(Flavour::Web));
        assert_eq!(
            read("application/grpc-web-text+proto"),
            Some(Flavour::WebText)
        );
        for wrong in [
            "",
            "application/json",
            "application/grpc+json",
            "application/grpcx",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
