//! Pieces of PHP code.

use std::collections::HashMap;
use std::fmt::Write;

use prost_reflect::FileDescriptor;

use crate::generated::{GeneratedFile, MARK};

/// The comments of a file, by the paths of what they stand at.
pub(super) struct Comments(HashMap<Vec<i32>, String>);

impl Comments {
    pub(super) fn of(file: &FileDescriptor) -> Self {
        let info = file.file_descriptor_proto().source_code_info.as_ref();
        let locations = info.map(|info| &*info.location).unwrap_or_default();
        let comments = locations.iter().filter_map(|at| {
            let leading = at.leading_comments().trim();
            let text = if leading.is_empty() {
                at.trailing_comments().trim()
            } else {
                leading
            };
            (!text.is_empty()).then(|| (at.path.clone(), text.to_owned()))
        });
        Self(comments.collect())
    }

    /// A comment of PHP: that of the `.proto` file, then these lines.
    pub(super) fn doc(&self, path: &[i32], indent: &str, lines: &[String]) -> String {
        let own = self.0.get(path).map_or("", |text| &**text);
        let mut doc = format!("{indent}/**\n");
        let own = own
            .lines()
            .map(|line| line.strip_prefix(' ').unwrap_or(line));
        let own: Vec<String> = own.map(escaped).collect();
        let gap = if own.is_empty() || lines.is_empty() {
            &[][..]
        } else {
            &[String::new()]
        };
        for line in own.iter().chain(gap).chain(lines) {
            let space = if line.trim_end().is_empty() { "" } else { " " };
            _ = writeln!(doc, "{indent} *{space}{}", line.trim_end());
        }
        _ = writeln!(doc, "{indent} */");
        doc
    }
}

/// A line of a comment that neither ends it nor is one of its tags.
fn escaped(line: &str) -> String {
    line.replace("*/", "*&#47;").replace('@', "&#64;")
}

/// The file of a class or an interface, whose declaration is `body`.
pub(super) fn class_file(of: &FileDescriptor, class: &str, body: &str) -> GeneratedFile {
    let namespace = class.rsplit_once('\\').map(|(namespace, _)| namespace);
    let namespace = namespace.map(|name| format!("\nnamespace {name};\n"));
    let namespace = namespace.unwrap_or_default();
    // A line of comment ends with `?>`, too.
    let source = of.name().replace("?>", "?").replace(char::is_control, "?");
    GeneratedFile {
        path: format!("{}.php", class.replace('\\', "/")),
        text: format!("{MARK} from `{source}`. Do not edit.\n{namespace}\n{body}"),
    }
}

/// A class without its namespace.
pub(super) fn short(class: &str) -> &str {
    class.rsplit_once('\\').map_or(class, |(_, name)| name)
}

/// Bytes as a text in double quotes.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    text.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'$' | b'"' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\x{byte:02X}"),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_text_that_php_reads_as_they_are() {
        assert_eq!(quoted(b"a$b\"\\\n\xff{$x}"), r#""a\$b\"\\\x0A\xFF{\$x}""#);
        assert_eq!(escaped("a */ @b"), "a *&#47; &#64;b");
    }
}
