//! A page as blocks, which Markdown and HTML are made of.

use super::plots::Plot;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Heading(u8, String),
    /// With `code`, *emphasis* by nothing, and links.
    Text(String),
    Code(String),
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// Only in HTML.
    Plot(Plot),
}

/// A page that grows.
#[derive(Debug, Default)]
pub(crate) struct Document(pub(crate) Vec<Block>);

impl Document {
    pub(crate) fn heading(&mut self, level: u8, text: impl Into<String>) {
        self.0.push(Block::Heading(level, text.into()));
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.0.push(Block::Text(text.into()));
    }

    pub(crate) fn code(&mut self, text: impl Into<String>) {
        self.0.push(Block::Code(text.into()));
    }

    /// Nothing without rows.
    pub(crate) fn table<const N: usize>(&mut self, head: [&str; N], rows: Vec<[String; N]>) {
        if rows.is_empty() {
            return;
        }
        self.0.push(Block::Table {
            head: head.map(str::to_owned).into(),
            rows: rows.into_iter().map(Vec::from).collect(),
        });
    }

    /// Nothing without points.
    pub(crate) fn plot(&mut self, plot: Plot) {
        if !plot.is_empty() {
            self.0.push(Block::Plot(plot));
        }
    }
}

/// Markdown whose lines are as wide as those of the other pages.
pub(crate) fn markdown(document: &Document) -> String {
    let blocks = document.0.iter().filter_map(|block| {
        Some(match block {
            Block::Heading(level, text) => format!("{} {text}", "#".repeat((*level).into())),
            Block::Text(text) => wrapped(text),
            Block::Code(text) => format!("```sh\n{text}\n```"),
            Block::Table { head, rows } => markdown_table(head, rows),
            Block::Plot(_) => return None,
        })
    });
    blocks.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn markdown_table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let rule: Vec<&str> = (0..head.len())
        .map(|column| {
            if holds_numbers(column, rows) {
                "---:"
            } else {
                "---"
            }
        })
        .collect();
    let lines = [line(head), format!("|{}|", rule.join("|"))];
    let rows = rows.iter().map(|row| line(row));
    lines.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Whether a column stands to the right: all but the first one may.
pub(super) fn holds_numbers(column: usize, rows: &[Vec<String>]) -> bool {
    let mut cells = rows.iter().filter_map(|row| row.get(column));
    column > 0 && cells.all(|cell| is_number(cell))
}

fn is_number(cell: &str) -> bool {
    let first = cell.chars().next();
    first.is_none_or(|first| first.is_ascii_digit() || "–-+±".contains(first))
}

fn wrapped(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        let width = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if width <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_markdown() {
        let mut document = Document::default();
        document.heading(2, "Rates");
        document.text("word ".repeat(30));
        document.table(["server", "rate"], vec![["a".into(), "12".into()]]);
        document.table(["server", "rate"], Vec::new());
        let text = markdown(&document);
        let (head, rest) = text.split_once("\n\n").unwrap();
        assert_eq!(head, "## Rates");
        assert_eq!(rest.lines().next().unwrap().len(), 99);
        assert!(
            text.ends_with("| server | rate |\n|---|---:|\n| a | 12 |\n"),
            "{text}"
        );
    }
}
