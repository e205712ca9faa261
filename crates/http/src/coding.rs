//! Content codings: their names, and which of them a client takes (RFC 9110, section 12.5.3).

use pronghorn_config::Choice;
use pronghorn_serve::weighed;
use pronghorn_wire::Fields;

/// A way to make a body shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Choice for Coding {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("br", Self::Brotli),
        ("zstd", Self::Zstd),
        ("gzip", Self::Gzip),
    ];
}

impl Coding {
    /// As it stands in Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Of a file that holds another one in this coding.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// By a name in a field, where gzip has an old one too.
    pub(crate) fn by_name(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("br") => Some(Self::Brotli),
            () if is("zstd") => Some(Self::Zstd),
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () => None,
        }
    }
}

/// The one that the client likes best of those that are `offered`; of equals the one that is
/// offered first. `None` when it likes the body as it is better, or takes none of them.
pub(crate) fn choose(request: &Fields, offered: &[Coding]) -> Option<Coding> {
    let mut named = [None; 3];
    let (mut others, mut plain) = (None, None);
    for (name, quality) in weighed(request, "accept-encoding") {
        match Coding::by_name(name) {
            Some(coding) => named[coding as usize] = Some(quality),
            None if name == b"*" => others = Some(quality),
            None if name.eq_ignore_ascii_case(b"identity") => plain = Some(quality),
            None => {}
        }
    }
    let quality = |coding: Coding| named[coding as usize].or(others).unwrap_or(0);
    let mut best = None;
    // What is not mentioned is acceptable, but only what is named is wished for.
    let mut least = plain.unwrap_or(0).max(1);
    for &coding in offered {
        let quality = quality(coding);
        if quality > least || (best.is_none() && quality == least) {
            (best, least) = (Some(coding), quality);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accepts: &[&str]) -> Option<Coding> {
        let request = accepts
            .iter()
            .map(|value| ("accept-encoding", *value))
            .collect();
        choose(&request, &[Coding::Brotli, Coding::Zstd, Coding::Gzip])
    }

    #[test]
    fn the_best_that_both_know() {
        use Coding::{Brotli, Gzip, Zstd};
        for (accepts, coding) in [
            ("", None),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, zstd", Some(Zstd)),
            ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
            ("gzip;q=0.5, br;q=0.51", Some(Brotli)),
            ("br;q=0, gzip", Some(Gzip)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("gzip;q=0.001", Some(Gzip)),
            ("gzip ; q = 0.5 , zstd;Q=0.7", Some(Zstd)),
            ("*", Some(Brotli)),
            ("*;q=0", None),
            ("br;q=0, *", Some(Zstd)),
            ("*;q=0, gzip", Some(Gzip)),
            ("identity", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip", Some(Gzip)),
            ("identity;q=0, gzip;q=0.1", Some(Gzip)),
            ("identity, gzip", Some(Gzip)),
            ("deflate", None),
            ("gzip;q=2", Some(Gzip)),
            ("gzip;q=0.1234", Some(Gzip)),
            ("gzip;q=", Some(Gzip)),
            ("gzip;level=9", Some(Gzip)),
            ("gzipped", None),
            (",,gzip,", Some(Gzip)),
        ] {
            assert_eq!(chosen(&[accepts]), coding, "{accepts}");
        }
        assert_eq!(chosen(&["deflate", "gzip"]), Some(Gzip), "two fields");
        assert_eq!(chosen(&[]), None);
    }
}
