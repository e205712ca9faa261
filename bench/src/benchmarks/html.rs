//! The page as one file that loads nothing: style and plots are in it.

use super::document::{Block, Document, holds_numbers};
use super::plots::{Plot, svg};

const STYLE: &str = include_str!("page.css");

pub(crate) fn html(document: &Document, title: &str) -> String {
    let body: Vec<String> = document.0.iter().map(block).collect();
    let body = body.join("\n");
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>{}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
",
        escaped(title)
    )
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(level, text) => format!("<h{level}>{}</h{level}>", inline(text)),
        Block::Text(text) => format!("<p>{}</p>", inline(text)),
        Block::Code(text) => format!("<pre><code>{}</code></pre>", escaped(text)),
        Block::Table { head, rows } => table(head, rows),
        Block::Plot(plot) => figure(plot),
    }
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let classes: Vec<&str> = (0..head.len())
        .map(|column| {
            if holds_numbers(column, rows) {
                " class=\"number\""
            } else {
                ""
            }
        })
        .collect();
    let cells = |cells: &[String], tag: &str| -> String {
        let cells = cells.iter().zip(&classes);
        let cells = cells.map(|(cell, class)| format!("<{tag}{class}>{}</{tag}>", inline(cell)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let rows: Vec<String> = rows.iter().map(|row| cells(row, "td")).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>\n{}\n</tbody>\n</table></div>",
        cells(head, "th"),
        rows.join("\n")
    )
}

/// Nothing of a plot that can't be drawn; its figures stand in a table.
fn figure(plot: &Plot) -> String {
    let Some(svg) = svg(plot) else {
        return String::new();
    };
    let mut legend = String::new();
    for (name, index) in plot.legend().into_iter().zip(0..) {
        let colour = format!("<span style=\"background: var(--series-{index})\"></span>");
        legend.extend(["<li>", &colour, &escaped(name), "</li>"]);
    }
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n<div class=\"wide\">\n{svg}</div>\n<ul class=\"legend\">{legend}</ul>\n</figure>",
        escaped(&plot.title)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// With `code` and links, which lead beside the page.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            html.extend(["<code>", &escaped(part), "</code>"]);
        } else {
            html.push_str(&links(part));
        }
    }
    html
}

fn links(text: &str) -> String {
    let mut html = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        let link = behind.split_once("](").and_then(|(name, behind)| {
            let (target, behind) = behind.split_once(')')?;
            Some((name, target, behind))
        });
        let Some((name, target, behind)) = link else {
            break;
        };
        html.push_str(&escaped(before));
        html.extend([
            "<a href=\"",
            &escaped(target),
            "\">",
            &escaped(name),
            "</a>",
        ]);
        rest = behind;
    }
    html + &escaped(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_escapes_what_it_shows() {
        let mut document = Document::default();
        document.heading(1, "A < B");
        document.text("`a<b` and [the guide](guide/x.md) [open");
        document.table(["server", "rate"], vec![["<x>".into(), "12".into()]]);
        let page = html(&document, "T");
        for part in [
            "<h1>A &lt; B</h1>",
            "<code>a&lt;b</code> and <a href=\"guide/x.md\">the guide</a> [open",
            "<td>&lt;x&gt;</td><td class=\"number\">12</td>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(
            !page.contains("http://") && !page.contains("src="),
            "{page}"
        );
    }
}
