//! Figures in other pages: what stands between `<!-- figure: NAME -->` and `<!-- /figure -->` is
//! taken from the figures of the last report.
//!
//! NAME is a row and what of it: `hello-100-connections 100 pronghorn rate`. A figure of two rows
//! is a ratio of one server to another: `… pronghorn/nginx-fpm rate`.

use super::page::{cpu, millis, number, rate, times};
use super::record::{Figures, Row};

const START: &str = "<!-- figure: ";
const NAMED: &str = " -->";
const END: &str = "<!-- /figure -->";

const SUMMARY: &str = "<!-- summary -->";
const SUMMARY_END: &str = "<!-- /summary -->";

/// A new page with the summary of the page before it, below the title: `scripts/chart` writes that
/// one.
pub(crate) fn with_summary(page: &str, before: &str) -> String {
    let summary = before
        .split_once(SUMMARY)
        .and_then(|(_, behind)| behind.split_once(SUMMARY_END));
    match (page.split_once('\n'), summary) {
        (Some((title, rest)), Some((summary, _))) => {
            format!("{title}\n\n{SUMMARY}{summary}{SUMMARY_END}\n{rest}")
        }
        _ => page.to_owned(),
    }
}

/// A text with all of its figures filled in.
///
/// # Errors
/// Names that no row has, and marks without an end.
pub(crate) fn fill(text: &str, figures: Option<&Figures>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(START) {
        let (name, behind) = behind
            .split_once(NAMED)
            .ok_or_else(|| format!("`{START}` without `{NAMED}`"))?;
        let (_, behind) = behind
            .split_once(END)
            .ok_or_else(|| format!("the figure `{name}` has no `{END}`"))?;
        let figures = figures.ok_or_else(|| {
            format!("the figure `{name}` was not measured yet\nhint: make report")
        })?;
        filled.extend([before, START, name, NAMED, &figure(name, figures)?, END]);
        rest = behind;
    }
    Ok(filled + rest)
}

fn figure(name: &str, figures: &Figures) -> Result<String, String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let [case, load, server, what] = words[..] else {
        return Err(format!(
            "the figure `{name}` is not named by a case, connections, a server and what of it"
        ));
    };
    let row = |server: &str| {
        let row = figures.row(case, load, server);
        row.ok_or_else(|| format!("there is no figure of `{server}` in `{case}` at `{load}`"))
    };
    let value = match server.split_once('/') {
        Some((server, other)) => times(raw(row(server)?, what)? / raw(row(other)?, what)?),
        None => text(row(server)?, what)?,
    };
    Ok(value)
}

fn unknown(what: &str) -> String {
    format!("there is no `{what}` of a row\nhint: rate, cpu, p50, p99, memory, ratio")
}

fn text(row: &Row, what: &str) -> Result<String, String> {
    Ok(match what {
        "rate" => rate(row),
        "cpu" => format!("{} µs", cpu(row)),
        "p50" => format!("{} ms", millis(row.p50_us)),
        "p99" => format!("{} ms", millis(row.p99_us)),
        "memory" => format!("{} MB", number(raw(row, what)? / 1e6)),
        "ratio" => times(raw(row, what)?),
        _ => return Err(unknown(what)),
    })
}

fn raw(row: &Row, what: &str) -> Result<f64, String> {
    let none = || format!("`{}` has no `{what}` in `{}`", row.server, row.case);
    Ok(match what {
        "rate" => row.requests_per_second.median,
        "cpu" => row.cpu_us.median,
        "p50" => row.p50_us,
        "p99" => row.p99_us,
        "memory" => row.memory_bytes.ok_or_else(none)?,
        "ratio" => row.ratio.ok_or_else(none)?.median,
        _ => return Err(unknown(what)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::figures;
    use super::*;

    #[test]
    fn figures_take_the_place_of_what_stands_there() {
        let text = "a <!-- figure: landing 50 pronghorn rate -->7<!-- /figure --> b \
                    <!-- figure: landing 50 pronghorn/nginx-fpm rate --><!-- /figure -->";
        let filled = fill(text, Some(&figures())).unwrap();
        assert_eq!(
            filled,
            "a <!-- figure: landing 50 pronghorn rate -->2,000<!-- /figure --> b \
             <!-- figure: landing 50 pronghorn/nginx-fpm rate -->4.00 ×<!-- /figure -->"
        );
        assert_eq!(fill(&filled, Some(&figures())).unwrap(), filled);
        assert_eq!(fill("no figures", None).unwrap(), "no figures");
    }

    #[test]
    fn a_new_page_keeps_the_summary() {
        let page = "# Title\n\nNew.\n";
        assert_eq!(with_summary(page, "# Title\n\nOld.\n"), page);
        let before = "# Title\n\n<!-- summary -->\nA\n<!-- /summary -->\n\nOld.\n";
        let kept = "# Title\n\n<!-- summary -->\nA\n<!-- /summary -->\n\nNew.\n";
        assert_eq!(with_summary(page, before), kept);
        assert_eq!(with_summary(page, kept), kept);
    }

    #[test]
    fn a_mark_of_no_figure_is_told() {
        let mark = |name: &str| format!("{START}{name}{NAMED}{END}");
        for (text, why) in [
            (mark("landing 50 pronghorn rates"), "there is no `rates`"),
            (mark("landing 50 swoole rate"), "no figure of `swoole`"),
            (mark("landing rate"), "is not named by"),
            (mark("landing 50 pronghorn memory"), "has no `memory`"),
            (format!("{START}x{NAMED}"), "has no `<!-- /figure -->`"),
        ] {
            let error = fill(&text, Some(&figures())).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let error = fill(&mark("landing 50 pronghorn rate"), None).unwrap_err();
        assert!(error.contains("make report"), "{error}");
    }
}
