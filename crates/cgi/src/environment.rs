//! The variables of a request as a program finds them in its environment (RFC 3875, section 4.1).

use crate::variables::pairs;

/// Those that are there also when they are empty; of any other, none is the same and says more.
const ALWAYS: [&[u8]; 3] = [b"QUERY_STRING", b"SCRIPT_NAME", b"SERVER_NAME"];
/// Fields that have a variable without `HTTP_` already.
const TOLD_BEFORE: [&[u8]; 2] = [b"HTTP_CONTENT_TYPE", b"HTTP_CONTENT_LENGTH"];

/// A request's environment, over what [`Variables::write`](crate::Variables::write) has written.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a>(&'a [u8]);

impl<'a> Environment<'a> {
    /// Of these variables.
    pub const fn of(block: &'a [u8]) -> Self {
        Self(block)
    }

    /// The file that is to be started: `SCRIPT_FILENAME`.
    pub fn program(self) -> Option<&'a [u8]> {
        self.value(b"SCRIPT_FILENAME")
    }

    /// `PATH_TRANSLATED`: what the path behind the program is below the root.
    pub fn path_translated(self) -> Option<Vec<u8>> {
        let info = self.value(b"PATH_INFO").filter(|info| !info.is_empty())?;
        Some([self.value(b"DOCUMENT_ROOT")?, info].concat())
    }

    /// Names and values. A value with a NUL in it can't be in an environment and is left out.
    pub fn variables(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        pairs(self.0).filter(|(name, value)| {
            let said = !value.is_empty() || ALWAYS.contains(name);
            said && !TOLD_BEFORE.contains(name) && !value.contains(&0)
        })
    }

    fn value(self, wanted: &[u8]) -> Option<&'a [u8]> {
        pairs(self.0)
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::push;

    fn block(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in pairs {
            push(&mut block, name.as_bytes(), &[value.as_bytes()]);
        }
        block
    }

    #[test]
    fn what_a_program_is_told() {
        let block = block(&[
            ("SCRIPT_FILENAME", "/srv/a.cgi"),
            ("PATH_INFO", "/x"),
            ("QUERY_STRING", ""),
            ("CONTENT_LENGTH", ""),
            ("SCRIPT_NAME", "/cgi-bin/a.cgi"),
            ("DOCUMENT_ROOT", "/srv"),
            ("HTTP_CONTENT_TYPE", "text/plain"),
            ("HTTP_X", "a\0b"),
            ("HTTP_Y", "1"),
        ]);
        let environment = Environment::of(&block);
        assert_eq!(environment.program(), Some(&b"/srv/a.cgi"[..]));
        assert_eq!(
            environment.path_translated().as_deref(),
            Some(&b"/srv/x"[..])
        );
        let names: Vec<_> = environment.variables().map(|(name, _)| name).collect();
        let expected = [
            "SCRIPT_FILENAME",
            "PATH_INFO",
            "QUERY_STRING",
            "SCRIPT_NAME",
            "DOCUMENT_ROOT",
            "HTTP_Y",
        ];
        assert_eq!(names, expected.map(str::as_bytes));
    }

    #[test]
    fn without_a_path_behind_it_nothing_is_translated() {
        let block = block(&[("PATH_INFO", ""), ("DOCUMENT_ROOT", "/srv")]);
        assert_eq!(Environment::of(&block).path_translated(), None);
        assert_eq!(Environment::of(&block).program(), None);
    }
}
