//! Tests of the crate from outside, over a section that has every type of value.

mod hostile;
mod loading;
mod places;

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{
    Address, Choice, Command, Endpoint, Pairs, Report, Section, Severity, Size, Subnet, Table,
};

/// Every type, every ending of a statement.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: Option<String>,
    pub(crate) count: usize,
    pub(crate) env: Pairs,
    pub(crate) list: Vec<String>,
    pub(crate) patience: Duration,
    pub(crate) inner: Inner,
    pub(crate) named: Vec<(String, Inner)>,
    pub(crate) items: Vec<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) port: u16,
    pub(crate) limit: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Color {
    Red,
    Green,
}

impl Choice for Color {
    const CHOICES: &'static [(&'static str, Self)] = &[("red", Self::Red), ("green", Self::Green)];
}

impl Section for Sample {
    fn read(t: &mut Table<'_>) -> Self {
        t.key::<PathBuf>("path", "A path.").optional();
        t.key::<bool>("flag", "Yes or no.").default(false);
        t.key("color", "A choice.").default(Color::Green);
        t.key::<Address>("address", "An address.").optional();
        t.key::<Endpoint>("endpoint", "An endpoint.").optional();
        t.key::<Command>("command", "A command.").optional();
        t.key::<Vec<Subnet>>("nets", "Subnets.").default(Vec::new());
        t.key("size", "A size.").default(Size::megabytes(1));
        t.key::<String>("password", "A secret.").optional();
        t.key::<String>("token", "A secret that others must know.")
            .guards()
            .optional();
        t.key("queue", "A queue.")
            .range(1..=9)
            .zero_means(9, "it ends")
            .default(5_u32);
        t.key::<Duration>("former_patience", "RoadRunner's.")
            .optional();
        t.not_yet("later", "what comes later");
        t.no_effect("former", "it is gone");
        Self {
            name: t.key("name", "A text.").optional(),
            count: t
                .key("count", "A number.")
                .range(1..=10)
                .zero_is_default()
                .default(3),
            env: t.key("env", "Pairs.").default(Pairs::default()),
            list: t.key("list", "Texts.").default(Vec::new()),
            patience: t
                .key("patience", "A duration.")
                .or_key("former_patience")
                .default(Duration::from_secs(30)),
            inner: t.section("inner", "A section."),
            named: t.sections_with("named", "Sections by name.", "One.", |t| {
                t.live();
                Inner::read(t)
            }),
            items: t.section_list_with("items", "Sections in a list.", "One.", 3, Inner::read),
        }
    }
}

impl Section for Inner {
    fn read(t: &mut Table<'_>) -> Self {
        Self {
            port: t.key("port", "A port.").default(80),
            limit: t
                .key("limit", "A limit.")
                .live()
                .limit_of(Duration::from_secs(1)),
        }
    }
}

/// The settings, and everything said, one string.
pub(crate) fn read(input: &pronghorn_config::Input) -> (Result<Sample, Report>, String) {
    let resolved = pronghorn_config::load(input).resolve::<Sample>(Severity::Error);
    let said = resolved.report().to_string();
    (resolved.into_settings(), said)
}
