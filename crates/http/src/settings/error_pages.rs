//! `http.error_pages`.

use std::path::PathBuf;

use pronghorn_config::{Node, Pair, Pairs, Section, Setting, Shape, Shown, Table, Wrong};

use crate::files::is_php_source;

/// Pages in place of the server's few words.
#[derive(Clone, Debug)]
pub struct ErrorPagesSettings {
    pub pages: StatusPages,
    /// Also in place of what PHP has made.
    pub intercept: bool,
}

/// Files by status (`404`) or by class (`5xx`).
#[derive(Clone, Debug, Default)]
pub struct StatusPages(Vec<Pair>);

impl StatusPages {
    /// Lowest and highest status of each, those of one status first.
    pub fn iter(&self) -> impl Iterator<Item = ((u16, u16), PathBuf)> {
        let of = |pair: &Pair| Some((range(&pair.name)?, PathBuf::from(&pair.value)));
        let mut pages: Vec<_> = self.0.iter().filter_map(of).collect();
        pages.sort_by_key(|((from, to), _)| to - from);
        pages.into_iter()
    }
}

impl Section for ErrorPagesSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let pages = t
            .key(
                "pages",
                "Files by status (`404: errors/404.html`) or by class of status (`5xx: \
                 errors/down.html`). Files are sent unchanged, so PHP sources are refused.",
            )
            .default(StatusPages::default());
        if let Some(pair) = pages.0.iter().find(|pair| is_php_source(&pair.value)) {
            let message = format!(
                "has `{}: {}`, a PHP script: pages are sent as they are, and so would be its source",
                pair.name, pair.value
            );
            let hint = "name a file such as `404.html`, or let the front controller answer";
            t.error("pages", &message, hint);
        }
        Self {
            pages,
            intercept: t
                .key(
                    "intercept",
                    "Whether these pages also replace PHP's own responses with such a status.",
                )
                .default(false),
        }
    }
}

/// Lowest and highest status.
fn range(name: &str) -> Option<(u16, u16)> {
    match name.to_ascii_lowercase().as_str() {
        "4xx" => Some((400, 499)),
        "5xx" => Some((500, 599)),
        status => {
            let status = status.parse().ok();
            let status = status.filter(|status| (400..=599).contains(status))?;
            Some((status, status))
        }
    }
}

impl Setting for StatusPages {
    fn example() -> String {
        "{404: errors/404.html, 5xx: errors/down.html}".to_owned()
    }

    fn accepts() -> String {
        "statuses from 400 to 599, `4xx` or `5xx`, each with a file".to_owned()
    }

    fn shape() -> Shape {
        Shape::Pairs
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let pairs = Pairs::read(node)?.0;
        match pairs
            .iter()
            .find(|pair| range(&pair.name).is_none() || pair.value.is_empty())
        {
            Some(pair) => {
                let hint = format!("`{}: {}` is none", pair.name, pair.value);
                Err(Wrong::hinted(node, hint))
            }
            None => Ok(Self(pairs)),
        }
    }

    fn show(&self) -> Shown {
        Shown::Map(self.0.clone())
    }
}
