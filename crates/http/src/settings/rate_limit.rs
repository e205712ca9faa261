//! `http.rate_limit`, that of a route, and `http.rate_limiter`, which is RoadRunner 3's.

use std::time::Duration;

use pronghorn_config::{Choice, Node, Setting, Shown, Table, Wrong};

use crate::routes::is_token;

/// So many requests of one client in a time.
#[derive(Clone, Debug)]
pub struct RateLimitSettings {
    pub rate: Rate,
    /// At once, from 1.
    pub burst: u32,
    pub by: RateKey,
    pub refusal: Refusal,
}

/// What a refused request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 429, as other answers of the server. A request without the field that names its client is
    /// one of its address.
    Ours,
    /// RoadRunner's text and fields. A request without the field is answered 400.
    RoadRunners,
}

/// `10/s`, `100/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub count: u32,
    /// A second, a minute or an hour; with `rate_limiter` any time.
    pub per: Duration,
}

/// Who is one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// An IPv4 address, a /64 of IPv6.
    Address,
    /// The value of this field, its name in lower case; without it the address.
    Header(String),
    /// All clients together.
    Global,
}

/// In an hour that is 277 a second; whoever allows more wants no limit.
const MOST: u32 = 1_000_000;

impl RateLimitSettings {
    /// None, and an error, without a rate.
    pub(super) fn read(t: &mut Table<'_>) -> Option<Self> {
        t.ours();
        t.live();
        let was_written = t.is_written("rate");
        let rate: Option<Rate> = t
            .key(
                "rate",
                "How many requests a client may send in which time. Further requests are answered \
                 429 with `Retry-After`.",
            )
            .optional();
        if !was_written {
            t.error("rate", "is missing", "for example `rate: 100/m`");
        }
        let most_at_once = rate.map_or(1, |rate| rate.count);
        let settings = Self {
            burst: t
                .key(
                    "burst",
                    "How many requests may arrive at once before the rate applies.",
                )
                .range(1..=MOST)
                .default_as(most_at_once, "the number in `rate`"),
            by: t
                .key(
                    "by",
                    "What identifies a client. `address` is the client's address, for IPv6 its /64 \
                     network. `header:NAME` is the value of a header field, or the address if the \
                     field is missing.",
                )
                .default(RateKey::Address),
            refusal: Refusal::Ours,
            rate: rate.unwrap_or(Rate {
                count: 1,
                per: Duration::from_secs(1),
            }),
        };
        rate.is_some().then_some(settings)
    }

    /// As [`Self::read`], of RoadRunner 3's section.
    pub(super) fn read_limiter(t: &mut Table<'_>) -> Option<Self> {
        t.live();
        let kind = t
            .key(
                "key",
                "What identifies a client. `ip`: its address. `header`: the value of a header \
                 field. `global`: nothing, so that all clients share one limit.",
            )
            .public()
            .differs(
                "each IPv6 address is a client",
                "one client usually has a whole /64 network",
            )
            .default(KeyKind::Ip);
        let header: Option<String> = t
            .key(
                "header",
                "The header field for `key: header`. A request without it is answered 400.",
            )
            .optional();
        let was_written = t.is_written("rate");
        let count: Option<u32> = t
            .key(
                "rate",
                "How many requests one client may send in one `interval`. Further requests are \
                 answered 429 with `Retry-After`.",
            )
            .range(1..=MOST)
            .optional();
        let per = t
            .key("interval", "The time that `rate` refers to.")
            .range(Duration::from_millis(1)..=Duration::from_hours(24))
            .default(Duration::from_secs(1));
        let burst = t
            .key(
                "burst",
                "How many requests may arrive at once before the rate applies.",
            )
            .range(1..=MOST)
            .default(1);
        t.no_effect(
            "max_entries",
            "the limit is 65,536 clients; above it, the least active one is forgotten, and no \
             request is refused",
        );
        if !was_written {
            t.error("rate", "is missing", "for example `rate: 100`");
        }
        let by = match (kind, header) {
            (KeyKind::Header, Some(name)) if !name.is_empty() && name.bytes().all(is_token) => {
                RateKey::Header(name.to_ascii_lowercase())
            }
            (KeyKind::Header, _) => {
                t.error(
                    "header",
                    "is no field's name",
                    "for example `header: X-Api-Key`",
                );
                RateKey::Address
            }
            (KeyKind::Ip | KeyKind::Global, Some(_)) => {
                t.error(
                    "header",
                    "is for `key: header`",
                    "write `key: header`, or remove it",
                );
                RateKey::Address
            }
            (KeyKind::Ip, None) => RateKey::Address,
            (KeyKind::Global, None) => RateKey::Global,
        };
        Some(Self {
            rate: Rate { count: count?, per },
            burst,
            by,
            refusal: Refusal::RoadRunners,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Ip,
    Header,
    Global,
}

impl Choice for KeyKind {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("ip", Self::Ip),
        ("header", Self::Header),
        ("global", Self::Global),
    ];
}

impl Setting for Rate {
    fn example() -> String {
        "100/m".to_owned()
    }

    fn accepts() -> String {
        format!("a number from 1 to {MOST} and a time, `10/s`, `100/m` or `1000/h`")
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let parse = |text: &str| {
            let (count, per) = text.split_once('/')?;
            let per = match per.trim() {
                "s" => Duration::from_secs(1),
                "m" => Duration::from_secs(60),
                "h" => Duration::from_hours(1),
                _ => return None,
            };
            let count = count.trim().parse().ok();
            let count = count.filter(|count| (1..=MOST).contains(count))?;
            Some(Self { count, per })
        };
        node.text()
            .and_then(parse)
            .ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        Shown::One(format!("{}/{unit}", self.count))
    }
}

impl Setting for RateKey {
    fn example() -> String {
        "header:X-Api-Key".to_owned()
    }

    fn accepts() -> String {
        "`address` or `header:NAME`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        match text.split_once(':') {
            None if text == "address" => Ok(Self::Address),
            Some(("header", name)) if !name.is_empty() && name.bytes().all(is_token) => {
                Ok(Self::Header(name.to_ascii_lowercase()))
            }
            _ => Err(Wrong::value(node)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(match self {
            Self::Address => "address".to_owned(),
            Self::Header(name) => format!("header:{name}"),
            Self::Global => "global".to_owned(), // not of this key
        })
    }
}
