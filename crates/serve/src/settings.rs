//! Keys that the listeners of several services have.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Subnet, Table};

use crate::proxy_protocol::ProxyProtocol;
use crate::tls::Pair;

/// As RoadRunner's: a header is the first that a load balancer sends.
const HEADER_TIME: Duration = Duration::from_secs(5);
const HEADER_TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(5);

/// The files of `cert` and `key`, which belong together. None where neither is there, or one is
/// wrong, which is told.
pub fn read_pair(
    t: &mut Table<'_>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Option<Pair> {
    if key
        .as_ref()
        .is_some_and(|key| key.as_os_str().as_encoded_bytes().starts_with(b"-----"))
    {
        let hint = "write it into a file that only the server can read, and its path here";
        t.error("key", "is a key and not the path of one", hint);
        return None;
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
        (Some(_), None) => {
            t.error("cert", "has no key", "add `key: privkey.pem`");
            None
        }
        (None, Some(_)) => {
            t.error("key", "has no certificate", "add `cert: fullchain.pem`");
            None
        }
        (None, None) => None,
    }
}

/// The section `proxy_protocol` of a listener.
pub fn read_proxies(t: &mut Table<'_>, is_unix: bool) -> Option<ProxyProtocol> {
    t.optional_section_with(
        "proxy_protocol",
        "The PROXY protocol. Each connection must begin with a PROXY header, version 1 or 2, in \
         which a load balancer names the client. Without this section, the server reads no such \
         header.",
        |t| {
            let trusted: Option<Vec<Subnet>> = t
                .key(
                    "trusted_proxies",
                    "The addresses of the load balancers. Connections from other addresses are \
                     refused. A unix socket does not need this key, because its mode says who may \
                     connect.",
                )
                .optional();
            let is_missing = match &trusted {
                Some(trusted) => trusted.is_empty(),
                None => !t.is_written("trusted_proxies"), // else it is wrong, which is said
            };
            let trusted = trusted.unwrap_or_default();
            if is_missing && !is_unix {
                t.error(
                    "trusted_proxies",
                    "is empty: nobody may connect",
                    "name the load balancers, for example `trusted_proxies: [10.0.0.0/8]`",
                );
            }
            if !trusted.is_empty() && is_unix {
                t.warn(
                    "trusted_proxies",
                    "has no effect for a unix socket, whose clients have no address",
                    "the socket's mode says who may connect",
                );
            }
            ProxyProtocol {
                trusted,
                timeout: t
                    .key("read_header_timeout", "Time limit for the PROXY header.")
                    .zero_is_default()
                    .range(HEADER_TIMES)
                    .default(HEADER_TIME),
            }
        },
    )
}
