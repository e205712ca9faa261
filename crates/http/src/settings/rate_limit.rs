//! `http.rate_limit`, and that of a route.

use std::time::Duration;

use pronghorn_config::{Node, Setting, Shown, Table, Wrong};

use crate::routes::is_token;

/// So many requests of one client in a time.
#[derive(Clone, Debug)]
pub struct RateLimitSettings {
    pub rate: Rate,
    /// At once, from 1.
    pub burst: u32,
    pub by: RateKey,
}

/// `10/s`, `100/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub count: u32,
    /// A second, a minute or an hour.
    pub per: Duration,
}

/// Who is one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// An IPv4 address, a /64 of IPv6.
    Address,
    /// The value of this field, its name in lower case; without it the address.
    Header(String),
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
                "How many requests a client may send in a time; further requests are answered 429 \
                 with `Retry-After`.",
            )
            .optional();
        if !was_written {
            t.error("rate", "is missing", "for example `rate: 100/m`");
        }
        let most_at_once = rate.map_or(1, |rate| rate.count);
        let settings = Self {
            burst: t
                .key("burst", "How many requests may arrive at once.")
                .range(1..=MOST)
                .default_as(most_at_once, "the number in `rate`"),
            by: t
                .key(
                    "by",
                    "What identifies a client: `address` (for IPv6, the /64 network), or \
                     `header:NAME`, the value of a field, and the address if the field is missing.",
                )
                .default(RateKey::Address),
            rate: rate.unwrap_or(Rate {
                count: 1,
                per: Duration::from_secs(1),
            }),
        };
        rate.is_some().then_some(settings)
    }
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
        })
    }
}
