//! The owner of connections: records are written under its name.

/// The service that a listener accepts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Http,
    Tcp,
}

impl Owner {
    /// The key that limits the connections of an address.
    pub(crate) const fn limit_of_address(self) -> &'static str {
        match self {
            Self::Http => "http.max_per_address",
            Self::Tcp => "max_per_address",
        }
    }
}

/// Writes a record on the channel of an [`Owner`]: the channel of a record is a constant.
macro_rules! tell {
    ($owner:expr, $level:ident, $($record:tt)*) => {
        match $owner {
            $crate::owner::Owner::Http => tracing::$level!(target: "http", $($record)*),
            $crate::owner::Owner::Tcp => tracing::$level!(target: "tcp", $($record)*),
        }
    };
}

pub(crate) use tell;
