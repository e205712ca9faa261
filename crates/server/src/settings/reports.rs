//! The section `reports`.

use pronghorn_config::{Section, Size, Table};

/// A week of a bad day.
const KEEP: usize = 200;
/// Some 100 KB for each.
const SIZE: Size = Size::megabytes(20);
const MOST_KEPT: usize = 10_000;
/// Parts of names whose values nobody but their owner may know.
const SECRETS: [&str; 12] = [
    "auth",
    "cookie",
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "api-key",
    "api_key",
    "apikey",
    "session",
    "signature",
];

/// What is kept of what went wrong.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// 0 writes none.
    pub keep: usize,
    pub size: Size,
    /// In lower case.
    pub mask: Vec<String>,
}

impl Section for ReportSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let mask: Vec<String> = t
            .key(
                "mask",
                "Names of request headers and query parameters whose values are replaced with \
                 `***` in reports. A name matches if it contains one of these texts, in upper or \
                 lower case. Values that `config show` replaces are replaced, too. Your list \
                 replaces the default one.",
            )
            .default(SECRETS.map(ToOwned::to_owned).to_vec());
        Self {
            keep: t
                .key(
                    "keep",
                    "How many reports are kept. The oldest are removed first. 0 writes no reports.",
                )
                .range(0..=MOST_KEPT)
                .default(KEEP),
            size: t
                .key("size", "The largest size of all reports together.")
                .default(SIZE),
            mask: mask.iter().map(|part| part.to_lowercase()).collect(),
        }
    }
}
