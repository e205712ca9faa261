//! RoadRunner's tables, character by character: programs and people read them.
//!
//! Its library draws boxes, centres heads and aligns cells on the left.

use std::time::Duration;

/// A table as `rr` prints it. Every line ends with a line feed.
pub(super) fn boxes<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let width = |cell: &str| cell.chars().count();
    let widths = rows.iter().fold(heads.map(width), |mut widths, row| {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(width(cell));
        }
        widths
    });
    let rule = |[left, between, right]: [&str; 3]| {
        let lines = widths.map(|width| "─".repeat(width + 2));
        format!("{left}{}{right}\n", lines.join(between))
    };
    let line = |cells: Vec<String>| format!("│{}│\n", cells.join("│"));
    let head = heads.iter().zip(widths);
    let row = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths);
        line(cells.map(|(cell, w)| format!(" {cell:<w$} ")).collect())
    };
    let mut out = rule(["┌", "┬", "┐"]);
    out.push_str(&line(
        head.map(|(cell, w)| format!(" {cell:^w$} ")).collect(),
    ));
    if !rows.is_empty() {
        out.push_str(&rule(["├", "┼", "┤"]));
        for cells in rows {
            out.push_str(&row(cells));
        }
    }
    out.push_str(&rule(["└", "┴", "┘"]));
    out
}

/// `25 MB`, `1.2 GB`: in units of 1000, with a decimal below ten.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog(1000);
    let unit = UNITS[power as usize];
    let one = 1000_u128.pow(power);
    let tenths = (u128::from(bytes) * 10 + one / 2) / one;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenths < 100 {
        return format!("{whole}.{tenth} {unit}");
    }
    // As Go prints: a half goes to the even side.
    let is_up = tenth > 5 || tenth == 5 && whole % 2 == 1;
    format!("{} {unit}", whole + u128::from(is_up))
}

/// `12 seconds ago`, `1 hour ago`, `now`: in the largest unit.
pub(super) fn ago(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const WEEK: u64 = 7 * DAY;
    const MONTH: u64 = 30 * DAY;
    const YEAR: u64 = 12 * MONTH;
    const UNITS: [(&str, u64); 7] = [
        ("year", YEAR),
        ("month", MONTH),
        ("week", WEEK),
        ("day", DAY),
        ("hour", HOUR),
        ("minute", MINUTE),
        ("second", 1),
    ];
    let seconds = age.as_secs();
    let largest = UNITS.iter().find(|(_, unit)| seconds >= *unit);
    match largest.map(|(name, unit)| (name, seconds / unit)) {
        None => "now".to_owned(),
        Some((name, 1)) => format!("1 {name} ago"),
        Some((name, number)) => format!("{number} {name}s ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const COLUMNS: usize>(rows: &[[&str; COLUMNS]]) -> Vec<[String; COLUMNS]> {
        rows.iter().map(|row| row.map(ToOwned::to_owned)).collect()
    }

    /// Printed by tablewriter 1.1.4 with RoadRunner's options.
    #[test]
    fn a_table_is_drawn_as_there() {
        assert_eq!(
            boxes(
                ["PID", "STATUS", "EXECS", "MEMORY", "CPU %", "CREATED"],
                &rows(&[
                    ["123", "ready", "1,234", "20 MB", "0.00", "12 seconds ago"],
                    ["45678", "working", "0", "1.2 GB", "100.00", "1 hour ago"],
                ]),
            ),
            "\
┌───────┬─────────┬───────┬────────┬────────┬────────────────┐
│  PID  │ STATUS  │ EXECS │ MEMORY │ CPU %  │    CREATED     │
├───────┼─────────┼───────┼────────┼────────┼────────────────┤
│ 123   │ ready   │ 1,234 │ 20 MB  │ 0.00   │ 12 seconds ago │
│ 45678 │ working │ 0     │ 1.2 GB │ 100.00 │ 1 hour ago     │
└───────┴─────────┴───────┴────────┴────────┴────────────────┘
"
        );
        assert_eq!(
            boxes(["PIPELINE ( S )"], &[]),
            "┌────────────────┐\n│ PIPELINE ( S ) │\n└────────────────┘\n"
        );
        assert_eq!(
            boxes(
                ["PIPELINE ( S )"],
                &rows(&[["mail"], ["orders-long-name-here"]])
            ),
            "\
┌───────────────────────┐
│    PIPELINE ( S )     │
├───────────────────────┤
│ mail                  │
│ orders-long-name-here │
└───────────────────────┘
"
        );
    }

    #[test]
    fn figures_are_written_as_there() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (12, "12 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (25_270_682, "25 MB"),
            (9_940_000, "9.9 MB"),
            (9_960_000, "10 MB"),
            (24_500_000, "24 MB"),
            (25_500_000, "26 MB"),
            (1_234_000_000, "1.2 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
        for (seconds, text) in [
            (0, "now"),
            (1, "1 second ago"),
            (59, "59 seconds ago"),
            (60, "1 minute ago"),
            (725, "12 minutes ago"),
            (3_600, "1 hour ago"),
            (7_200, "2 hours ago"),
            (86_400, "1 day ago"),
            (7 * 86_400, "1 week ago"),
            (29 * 86_400, "4 weeks ago"),
            (30 * 86_400, "1 month ago"),
            (720 * 86_400, "2 years ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), text, "{seconds}");
        }
    }
}
