//! The tracked figures: a line for each row.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use crate::error::Error;

/// More is a change of the code: two runs on one machine differ by less than 0.1 %, and another
/// release of the C library by some tenths.
const TOLERANCE_PERCENT: f64 = 2.0;

const HEAD: &str = "\
# Instructions that the server, or PHP, spends on one request, by row (bench/instructions/README.md).
# Written by `make instructions UPDATE_INSTRUCTIONS=1`; `make instructions` fails when one is more than
# 2 % off.
";

/// What stands before the compiler's name.
const COMPILER: &str = "# Counted with ";
const PHP: &str = "# PHP's side with ";

/// Instructions per request by row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    rows: BTreeMap<String, u64>,
    /// As `rustc --version` says it. Another one makes other code, whose figures say nothing about
    /// ours.
    pub(crate) compiler: Option<String>,
    /// As `php --version` says it, for rows of PHP's side.
    pub(crate) php: Option<String>,
}

/// A measured figure beside the tracked one.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Same(f64),
    Grew(f64),
    Shrank(f64),
    New,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(percent) => write!(f, "{percent:+.2} %"),
            Self::Grew(percent) => write!(f, "{percent:+.2} %  GREW"),
            Self::Shrank(percent) => write!(f, "{percent:+.2} %  shrank"),
            Self::New => f.write_str("not tracked yet"),
        }
    }
}

impl Figures {
    /// A file that is not there has no figures.
    pub(crate) fn read(file: &Path) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                let file = file.to_owned();
                return Err(Error::File { file, source });
            }
        };
        let wrong = |line| Error::Figure {
            file: file.to_owned(),
            line,
        };
        let named = |prefix| text.lines().find_map(|line| line.strip_prefix(prefix));
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let figures = lines.map(|(number, line)| {
            let (name, figure) = line.split_once('=').ok_or_else(|| wrong(number))?;
            let figure = figure.trim().replace('_', "");
            let figure = figure.parse().map_err(|_| wrong(number))?;
            Ok((name.trim().to_owned(), figure))
        });
        Ok(Self {
            rows: figures.collect::<Result<_, _>>()?,
            compiler: named(COMPILER).map(str::to_owned),
            php: named(PHP).map(str::to_owned),
        })
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), Error> {
        let mut text = HEAD.to_owned();
        for (prefix, name) in [(COMPILER, &self.compiler), (PHP, &self.php)] {
            if let Some(name) = name {
                writeln!(text, "{prefix}{name}").expect("a string takes all");
            }
        }
        for (name, figure) in &self.rows {
            writeln!(text, "{name} = {figure}").expect("a string takes all");
        }
        std::fs::write(file, text).map_err(|source| Error::File {
            file: file.to_owned(),
            source,
        })
    }

    pub(crate) fn set(&mut self, row: &str, figure: u64) {
        self.rows.insert(row.to_owned(), figure);
    }

    pub(crate) fn of(&self, row: &str) -> Option<u64> {
        self.rows.get(row).copied()
    }

    pub(crate) fn judge(&self, row: &str, measured: u64) -> Verdict {
        let Some(tracked) = self.of(row) else {
            return Verdict::New;
        };
        match change(tracked, measured) {
            percent if percent > TOLERANCE_PERCENT => Verdict::Grew(percent),
            percent if percent < -TOLERANCE_PERCENT => Verdict::Shrank(percent),
            percent => Verdict::Same(percent),
        }
    }
}

/// In percent.
#[expect(clippy::cast_precision_loss, reason = "counts of a few ten thousand")]
pub(crate) fn change(before: u64, after: u64) -> f64 {
    (after as f64 / before as f64 - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_are_seen_and_noise_is_not() {
        let mut tracked = Figures::default();
        tracked.set("native", 20_000);
        assert!(matches!(tracked.judge("native", 21_000), Verdict::Grew(_)));
        assert!(matches!(
            tracked.judge("native", 19_000),
            Verdict::Shrank(_)
        ));
        assert!(matches!(tracked.judge("native", 20_100), Verdict::Same(_)));
        assert_eq!(tracked.judge("json", 1), Verdict::New);
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let file = std::env::temp_dir().join(format!("pronghorn-figures-{}", std::process::id()));
        let mut figures = Figures {
            compiler: Some("rustc 1.0".into()),
            php: Some("PHP 8.1".into()),
            ..Figures::default()
        };
        figures.set("native", 20_000);
        figures.set("json", 40_000);
        figures.write(&file).unwrap();
        let read = Figures::read(&file).unwrap();
        std::fs::write(&file, "native 3\n").unwrap();
        let wrong = Figures::read(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            (read.of("native"), read.of("json")),
            (Some(20_000), Some(40_000))
        );
        assert_eq!(read.compiler.as_deref(), Some("rustc 1.0"));
        assert_eq!(read.php.as_deref(), Some("PHP 8.1"));
        assert!(wrong.contains("line 1"), "{wrong}");
    }
}
