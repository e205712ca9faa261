//! The URL of a broker.

use std::fmt;

use pronghorn_config::Table;

/// A URL, which may hold a password: it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BrokerAddress(String);

impl BrokerAddress {
    pub(crate) const fn new(url: String) -> Self {
        Self(url)
    }

    #[cfg(any(feature = "amqp", feature = "nats"))]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn scheme(&self) -> Option<&str> {
        self.0.split_once("://").map(|(scheme, _)| scheme)
    }

    /// Without what says who asks.
    pub(crate) fn place(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        match rest.split_once('/') {
            Some((place, _)) if !place.is_empty() => place,
            _ => rest,
        }
    }
}

impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place())
    }
}

pub(crate) fn address(t: &mut Table<'_>, default: &str, schemes: &[&str]) -> BrokerAddress {
    address_or(t, default, schemes, None)
}

/// `scheme` is meant where none is written.
pub(crate) fn address_or(
    t: &mut Table<'_>,
    default: &str,
    schemes: &[&str],
    scheme: Option<&str>,
) -> BrokerAddress {
    let address = t
        .key(
            "addr",
            "The broker's address, with a user name and a password if the broker needs them.",
        )
        .default(default.to_owned());
    let address = match scheme {
        Some(scheme) if !address.contains("://") => format!("{scheme}://{address}"),
        _ => address,
    };
    let address = BrokerAddress(address);
    let scheme = address.scheme();
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) || address.place().is_empty() {
        let all = schemes.join("://`, `");
        let message = format!("is no address of a broker; accepted: what begins with `{all}://`");
        t.error("addr", &message, &format!("for example `{default}`"));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_who_asks() {
        for (url, place) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://user:pass@host:1/2", "host:1"),
            ("redis://:p@ss/word@host:1/2?a=b", "host:1"),
            ("amqp://guest:guest@127.0.0.1:5672/", "127.0.0.1:5672"),
            ("unix:///run/redis.sock?db=2&pass=secret", "/run/redis.sock"),
        ] {
            let address = BrokerAddress::new(url.to_owned());
            assert_eq!(address.place(), place, "{url}");
            assert_eq!(format!("{address:?}"), place);
        }
    }
}
