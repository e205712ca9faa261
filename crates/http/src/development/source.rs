//! The lines of a file around one of them.

use std::path::PathBuf;
use std::sync::Arc;

use pronghorn_process::Credentials;
use pronghorn_process::file::{Patience, read_at};

use crate::file;

/// Lines before and behind the one that counts.
const AROUND: usize = 6;
/// As much of a file is read. No code that people write is longer.
const MOST_BYTES: usize = 1 << 20;
/// What PHP runs has one; a file of secrets that something else has named has none.
const OPENING_TAG: &[u8] = b"<?";
/// Letters of a line.
const LONGEST_LINE: usize = 300;

/// Lines with their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) lines: Vec<(u32, String)>,
}

/// None where there is no such file or line, or where the worker could not read it.
pub(crate) async fn excerpt(
    file: &str,
    line: u32,
    user: Option<Arc<Credentials>>,
) -> Option<Excerpt> {
    let opened = file::open(PathBuf::from(file), Arc::default(), user, |_, _| true).await;
    let (file, _) = opened.ok()?;
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; MOST_BYTES];
        let mut len = 0;
        while len < MOST_BYTES {
            match read_at(file.file(), &mut bytes[len..], len as u64, Patience::Waits) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(_) => return None,
            }
        }
        bytes.truncate(len);
        Some(bytes)
    });
    let text = read.await.ok()??;
    let is_code = text.windows(OPENING_TAG.len()).any(|it| it == OPENING_TAG);
    is_code
        .then(|| around(&String::from_utf8_lossy(&text), line))
        .flatten()
}

fn around(text: &str, line: u32) -> Option<Excerpt> {
    let wanted = usize::try_from(line).ok()?.checked_sub(1)?;
    let first = wanted.saturating_sub(AROUND);
    let mut lines: Vec<(u32, String)> = (1..)
        .zip(text.lines())
        .skip(first)
        .take(wanted - first + 1 + AROUND)
        .map(|(number, line)| (number, line.chars().take(LONGEST_LINE).collect()))
        .collect();
    // PHP names the line behind the last one where a file ends too early.
    if lines.last().is_some_and(|(last, _)| last + 1 == line) {
        lines.push((line, String::new()));
    }
    let has_it = lines.iter().any(|(number, _)| *number == line);
    has_it.then_some(Excerpt { lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_around_one_are_taken() {
        let text: Vec<_> = (1..=20).map(|n| format!("line {n}")).collect();
        let text = text.join("\n");
        let numbers = |line| {
            let lines = around(&text, line)?.lines;
            Some((lines.first()?.0, lines.last()?.0))
        };
        assert_eq!(numbers(1), Some((1, 7)));
        assert_eq!(numbers(10), Some((4, 16)));
        assert_eq!(numbers(20), Some((14, 20)));
        assert_eq!(numbers(21), Some((15, 21)));
        assert_eq!(
            (numbers(0), numbers(22), numbers(u32::MAX)),
            (None, None, None)
        );
    }
}
