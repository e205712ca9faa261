//! Which server: what a URL says before its path.

/// A server by its scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    is_tls: bool,
    host: String,
    port: u16,
    authority: String,
}

impl Origin {
    /// `host` has no brackets, also where it is an address of IPv6.
    pub fn new(is_tls: bool, host: &str, port: u16) -> Self {
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        Self {
            is_tls,
            host: host.to_owned(),
            port,
            authority,
        }
    }

    /// Reads the beginning of `http://host:port/…` or `https://host/…`. None for anything else.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (is_tls, default_port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| Self {
            is_tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
        })
    }

    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The host and the port as in the field `Host`: with the port where the URL has it.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_a_url() {
        for (url, host, port, is_tls) in [
            ("http://127.0.0.1:5000", "127.0.0.1", 5000, false),
            (
                "https://sqs.eu-west-1.amazonaws.com/x",
                "sqs.eu-west-1.amazonaws.com",
                443,
                true,
            ),
            ("http://[::1]:8085/v1", "::1", 8085, false),
            ("http://[::1]", "::1", 80, false),
            ("https://host?x=1:2", "host", 443, true),
        ] {
            let origin = Origin::parse(url).unwrap_or_else(|| panic!("{url}"));
            let read = (origin.host(), origin.port(), origin.is_tls());
            assert_eq!(read, (host, port, is_tls), "{url}");
        }
        for url in [
            "",
            "host",
            "ftp://host",
            "http://",
            "http://host:port",
            "http://host:70000",
            "https://:1",
        ] {
            assert_eq!(Origin::parse(url), None, "{url}");
        }
    }

    #[test]
    fn an_address_of_ipv6_has_brackets_before_its_port() {
        assert_eq!(Origin::new(false, "::1", 80).authority(), "[::1]:80");
        assert_eq!(Origin::new(true, "a.b", 443).authority(), "a.b:443");
        assert_eq!(
            Origin::parse("https://[::1]:8/x").unwrap().authority(),
            "[::1]:8"
        );
    }
}
