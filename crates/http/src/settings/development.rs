//! `http.development`: what development mode does in a browser.

use std::env;
use std::fmt::Write as _;

use pronghorn_config::{Node, Section, Setting, Shown, Table, Wrong};

/// By it a person names the editor once, for all applications.
const VARIABLE: &str = "PRONGHORN_EDITOR";
/// Editors by name, and what opens a file in each.
const EDITORS: [(&str, &str); 3] = [
    ("vscode", "vscode://file{file}:{line}"),
    ("phpstorm", "phpstorm://open?file={file}&line={line}"),
    ("sublime", "subl://open?url=file://{file}&line={line}"),
];

/// What development mode does in a browser.
#[derive(Clone, Debug)]
pub struct DevelopmentSettings {
    /// What error pages link to.
    pub editor: Editor,
    /// Pages load again after a change.
    pub reload: bool,
}

impl Section for DevelopmentSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        Self {
            editor: t
                .key(
                    "editor",
                    "The editor that opens a file when you click a link on the error page.",
                )
                .default_as(
                    Editor::of_person(env::var(VARIABLE).ok().as_deref()),
                    "the variable `PRONGHORN_EDITOR`, else `vscode`",
                ),
            reload: t
                .key(
                    "reload",
                    "Whether the browser reloads a page after a change. The server adds a small \
                     script to each HTML page for this.",
                )
                .default(true),
        }
    }
}

/// An editor with an address for each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Editor {
    name: String,
    url: String,
}

impl Default for Editor {
    fn default() -> Self {
        let (name, url) = EDITORS[0];
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
        }
    }
}

impl Editor {
    /// What does not name one is not the fault of this application: it is passed over.
    fn of_person(named: Option<&str>) -> Self {
        named.and_then(Self::named).unwrap_or_default()
    }

    fn named(text: &str) -> Option<Self> {
        let text = text.trim();
        let known = EDITORS.iter().find(|(name, _)| *name == text);
        let url = match known {
            Some((_, url)) => url,
            None if is_address(text) => text,
            None => return None,
        };
        Some(Self {
            name: text.to_owned(),
            url: url.to_owned(),
        })
    }

    /// The address of a line of a file.
    pub(crate) fn link(&self, file: &str, line: u32) -> String {
        let mut escaped = String::with_capacity(file.len());
        for byte in file.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                    escaped.push(char::from(byte));
                }
                other => _ = write!(escaped, "%{other:02X}"), // a String takes all
            }
        }
        self.url
            .replace("{file}", &escaped)
            .replace("{line}", &line.to_string())
    }
}

/// Whether a text is an address with a place for a file. Those that would run in the page are none.
fn is_address(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter));
    let runs = ["javascript", "data", "vbscript"]
        .iter()
        .any(|runs| scheme.eq_ignore_ascii_case(runs));
    is_scheme && !runs && text.contains("{file}")
}

impl Setting for Editor {
    fn example() -> String {
        "phpstorm".to_owned()
    }

    fn accepts() -> String {
        let names: Vec<_> = EDITORS
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        format!(
            "{}, or an address with `{{file}}` and `{{line}}` in it",
            names.join(", ")
        )
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let named = node.text().and_then(Self::named);
        named.ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        Shown::One(self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_is_named_or_is_an_address() {
        for (named, link) in [
            ("vscode", Some("vscode://file/srv/a%20b.php:7")),
            (
                "phpstorm",
                Some("phpstorm://open?file=/srv/a%20b.php&line=7"),
            ),
            ("zed://file/{file}", Some("zed://file//srv/a%20b.php")),
            ("emacs", None),
            ("javascript:alert('{file}')", None),
            ("x://no-place", None),
        ] {
            let editor = Editor::named(named).map(|editor| editor.link("/srv/a b.php", 7));
            assert_eq!(editor.as_deref(), link, "{named}");
        }
        assert_eq!(Editor::of_person(Some("no such editor")), Editor::default());
    }
}
