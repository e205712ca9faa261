//! Names of a request's fields over HTTP/2 and HTTP/3: what they mean, and which values they may
//! have (RFC 9113, section 8.2 and 8.3; RFC 9114, section 4.2 and 4.3).

/// Names longer than this are none for `http`.
const LONGEST: usize = u16::MAX as usize;
/// Parts of a cookie that a request may have. Browsers send one for each cookie, and keep at most
/// 180 of a site.
pub(crate) const CRUMBS: usize = 256;

/// Why a request is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Name,
    Value,
    Connection,
    Pseudo,
    Priority,
    /// More fields than a block may have. Such a request is not malformed: it gets an answer.
    TooMany,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::Name,
        Self::Value,
        Self::Connection,
        Self::Pseudo,
        Self::Priority,
        Self::TooMany,
    ];

    pub(crate) fn mark(self) -> u8 {
        b'0' + self as u8
    }

    /// The fault that the value of a mark says.
    pub(crate) fn of(mark: &[u8]) -> Self {
        let fault = Self::ALL.into_iter().find(|fault| mark == [fault.mark()]);
        fault.unwrap_or(Self::Name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Name => "a field's name",
            Self::Value => "a field's value",
            Self::Connection => "a field about the connection",
            Self::Pseudo => "a field that begins with a colon",
            Self::Priority => "a stream that depends on itself",
            Self::TooMany => "too many fields",
        }
    }
}

/// The meaning of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Method,
    Scheme,
    Path,
    Authority,
    Te,
    Cookie,
    Plain,
    /// None of a request.
    Bad(Fault),
}

impl Name {
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":path" => Self::Path,
            b":authority" => Self::Authority,
            // `:status` is for replies, `:protocol` for what this server does not offer.
            [b':', ..] => Self::Bad(Fault::Pseudo),
            b"te" => Self::Te,
            b"cookie" => Self::Cookie,
            // RFC 9113, section 8.2.2.
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
            | b"proxy-connection" => Self::Bad(Fault::Connection),
            _ if is_token(name) && name.len() <= LONGEST => Self::Plain,
            _ => Self::Bad(Fault::Name),
        }
    }

    /// An entry of the static table (RFC 7541, appendix A), which begins with 1.
    pub(crate) fn of_static(index: usize) -> Self {
        match index {
            1 => Self::Authority,
            2..=3 => Self::Method,
            4..=5 => Self::Path,
            6..=7 => Self::Scheme,
            8..=14 => Self::Bad(Fault::Pseudo),
            32 => Self::Cookie,
            57 => Self::Bad(Fault::Connection),
            _ => Self::Plain,
        }
    }

    /// A bit for each field that requests begin with, which trailers must not have (RFC 9113,
    /// section 8.3).
    pub(crate) const fn begins(self) -> u8 {
        match self {
            Self::Method => 1,
            Self::Scheme => 2,
            Self::Path => 4,
            Self::Authority => 8,
            Self::Te | Self::Cookie | Self::Plain | Self::Bad(_) => 0,
        }
    }

    /// The fault of a value, if it has one.
    pub(crate) fn fault_of(self, value: &[u8]) -> Option<Fault> {
        let is_good = match self {
            Self::Bad(fault) => return Some(fault),
            Self::Plain | Self::Cookie => value
                .iter()
                .all(|byte| *byte >= b' ' && *byte != 0x7f || *byte == b'\t'),
            Self::Te if value != b"trailers" => return Some(Fault::Connection),
            Self::Te => true,
            Self::Method => {
                !value.is_empty()
                    && value
                        .iter()
                        .all(|byte| is_token_byte(byte.to_ascii_lowercase()))
            }
            Self::Scheme => is_scheme(value),
            Self::Path => is_path(value),
            Self::Authority => is_authority(value),
        };
        (!is_good).then_some(Fault::Value)
    }

    /// Takes the place of a value of which `h2` must have no more than the length.
    pub(crate) fn filler(self, length: usize) -> Vec<u8> {
        let mut value = vec![b'x'; length];
        if let (Self::Path, Some(first)) = (self, value.first_mut()) {
            *first = b'/';
        }
        value
    }
}

/// Without one of these fields there is no request; see [`Name::begins`].
pub(crate) const REQUEST: u8 = 7;

/// Whether a token may have this byte (RFC 9110, section 5.6.2); capitals are left out.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| is_token_byte(*byte))
}

/// As in an absolute form of HTTP/1.1. A proxy that ends TLS may say `https` without TLS.
fn is_scheme(value: &[u8]) -> bool {
    let names = [&b"https"[..], b"http"];
    names.iter().any(|name| value.eq_ignore_ascii_case(name))
}

/// Whether `http` takes it.
fn is_path(value: &[u8]) -> bool {
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/?&=-._~%+:,;@!$'()*[]".contains(byte);
    matches!(value, [b'/', rest @ ..] if rest.len() < 1 << 14 && rest.iter().all(plain))
        || matches!(value, [b'/', ..] | b"*") && http::uri::PathAndQuery::try_from(value).is_ok()
}

fn is_authority(value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !value.is_empty() && value.iter().all(plain) || http::uri::Authority::try_from(value).is_ok()
}
