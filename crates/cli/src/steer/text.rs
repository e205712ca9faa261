//! Figures and foreign text, as a person reads them.

use std::time::Duration;

use pronghorn_server::logs::printable;

/// `1,234,567`
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `24.1 MB`, in units of 1024 as the configuration has them.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| number >= *size);
    let Some((unit, size)) = unit else {
        return format!("{number} B");
    };
    let tenths = u128::from(number) * 10 / u128::from(*size);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// `3d 4h`, `12m 5s`, `7s`: the two largest units.
pub(super) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// The same in one unit: `3d`, `12m`, `7s`.
pub(super) fn coarse_time(duration: Duration) -> String {
    let time = time(duration);
    time.split(' ').next().unwrap_or(&time).to_owned()
}

/// The same for what is mostly short: `0.3s` below ten seconds.
pub(super) fn short_time(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        let tenths = duration.as_millis() / 100;
        return format!("{}.{}s", tenths / 10, tenths % 10);
    }
    time(duration)
}

/// Says how long a process has waited for something. In a state other than `starting`, the process
/// is up, and its replacement waits.
pub(super) fn has_waited(state: &str, what: &str, time: Duration) -> String {
    let who = match state {
        "starting" => "",
        _ => "its replacement ",
    };
    format!(
        "{who}has waited {} for {}",
        self::time(time),
        one_line(what)
    )
}

/// `1 worker`, `2 workers`
pub(super) fn counted(number: u64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {one}{s}", count(number))
}

/// One line that a terminal shows and does not obey: clients choose what is in a request's path.
pub(super) fn line(text: &str) -> String {
    let shown = |c: char| {
        if c.is_ascii_graphic() || c == ' ' {
            c
        } else {
            '?'
        }
    };
    text.chars().map(shown).collect()
}

/// The same for several lines in any script.
pub(super) fn lines(text: &str) -> String {
    printable(text)
}

/// A text on one line, with letters of any language.
pub(super) fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// At most `width` characters; what is longer ends with `…`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(Some('…')).take(width).collect()
}

/// A cell that is longer is cut: an ID may have thousands of characters, and JSON shows it whole.
const WIDEST: usize = 64;
/// The same for the last column, which has sentences.
const WIDEST_LAST: usize = 240;

/// A table: a row a line, columns as wide as what is in them.
pub(super) fn columns<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let cut = |row: &[String; COLUMNS]| {
        std::array::from_fn::<_, COLUMNS, _>(|column| {
            let is_last = column + 1 == COLUMNS;
            cut(&row[column], if is_last { WIDEST_LAST } else { WIDEST })
        })
    };
    let rows: Vec<_> = rows.iter().map(cut).collect();
    let widths = rows.iter().fold(heads.map(str::len), |mut widths, row| {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
        widths
    });
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(widths);
        let padded: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(heads.to_vec());
    for row in &rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1023, 1024, 25_270_682].map(bytes),
            ["0 B", "1023 B", "1.0 KB", "24.1 MB"]
        );
        assert_eq!(bytes(u64::MAX), "17179869183.9 GB");
        let times = [7, 725, 11_045, 273_600].map(Duration::from_secs).map(time);
        assert_eq!(times, ["7s", "12m 5s", "3h 4m", "3d 4h"]);
        assert_eq!(coarse_time(Duration::from_secs(725)), "12m");
        let times = [340, 9999, 10_000]
            .map(Duration::from_millis)
            .map(short_time);
        assert_eq!(times, ["0.3s", "9.9s", "10s"]);
    }

    #[test]
    fn no_text_reaches_the_terminals_controls() {
        assert_eq!(line("GET /\u{1b}[2J\u{9b}\n\u{202e}é"), "GET /?[2J????");
        assert_eq!(lines("é\n\u{1b}[2J\r"), "é\n\\u001b[2J\\r");
        assert_eq!(one_line("é\n\u{1b}[2J\r"), "é\\n\\u001b[2J\\r");
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(cut("grün", 4), "grün");
        assert_eq!(cut("grün", 3), "gr…");
        assert_eq!(cut("grün", 1), "…");
        let long = [
            ["x".repeat(5000), "b".to_owned()],
            ["y".to_owned(), "c".to_owned()],
        ];
        let shown = columns(["ID", "JOB"], &long);
        assert!(
            shown.lines().all(|line| line.chars().count() <= WIDEST + 5),
            "{shown}"
        );
        assert_eq!(cut("grün", 0), "");
    }
}
