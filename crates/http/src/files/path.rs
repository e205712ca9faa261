//! What a request's path names below a folder, if it can name a file at all.
//!
//! A client can write one path in many ways. It is decoded once; what could be read as another path
//! behind that (an encoded slash, a backslash, NUL) or is no proper code names nothing. So what is
//! looked up is exactly what the rules have judged.

use std::borrow::Cow;

use pronghorn_cgi::path::{Decoded, WELL_KNOWN, decode};

/// What is longer than the kernel takes names no file.
const LONGEST: usize = 4095;
const LONGEST_NAME: usize = 255;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named<'a> {
    /// Without a slash at either end.
    File(Cow<'a, [u8]>),
    /// It ends in a slash: not a file, whatever is there. Without that slash; empty for the root
    /// itself.
    Folder(Cow<'a, [u8]>),
    /// It has a `..` in it.
    Climbs,
    /// Something hidden, or something that is two things at once.
    Nothing,
}

impl<'a> Named<'a> {
    /// By a request's path: an encoded slash or a backslash in it names nothing.
    pub(super) fn by(received: &'a [u8]) -> Self {
        match received.strip_prefix(b"/").map(decode) {
            Some(Some(Decoded { text, doubt: None })) => Self::of(text),
            _ => Self::Nothing,
        }
    }

    /// By a path that an application wrote, which may have encoded any of its slashes.
    pub(super) fn by_application(written: &'a [u8]) -> Self {
        let Some(Decoded { text, .. }) = decode(written) else {
            return Self::Nothing;
        };
        match text {
            Cow::Borrowed([b'/', below @ ..]) => Self::of(below.into()),
            Cow::Owned(text) if text.starts_with(b"/") => Self::of(text[1..].to_vec().into()),
            _ => Self::Nothing,
        }
    }

    /// By a decoded path without the slash at its start.
    fn of(decoded: Cow<'a, [u8]>) -> Self {
        if decoded.len() > LONGEST {
            return Self::Nothing;
        }
        let mut is_clean = true;
        let mut ends_in_slash = false;
        for (index, segment) in decoded.split(|&byte| byte == b'/').enumerate() {
            ends_in_slash = matches!(segment, b"" | b".");
            match segment {
                b"" | b"." => is_clean = false,
                b".." => return Self::Climbs,
                [b'.', ..] if index > 0 || segment != WELL_KNOWN => return Self::Nothing,
                name if name.len() > LONGEST_NAME => return Self::Nothing,
                _ => {}
            }
        }
        let path = if is_clean {
            decoded
        } else {
            join(&decoded).into()
        };
        match (ends_in_slash, is_climbing(&path)) {
            (_, true) => Self::Climbs,
            (true, _) => Self::Folder(path),
            (false, _) => Self::File(path),
        }
    }
}

/// Never, after what was looked at; but all depends on it.
fn is_climbing(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .any(|segment| segment == b"..")
}

/// Without empty segments and `.`.
fn join(path: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len());
    let segments = path.split(|&byte| byte == b'/');
    for segment in segments.filter(|segment| !matches!(*segment, b"" | b".")) {
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(segment);
    }
    joined
}

/// The last segment.
pub(super) fn name(path: &[u8]) -> &[u8] {
    let start = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
    &path[start..]
}

/// From a name's last dot on.
pub(super) fn ending(name: &[u8]) -> Option<&[u8]> {
    memchr::memrchr(b'.', name).map(|dot| &name[dot..])
}

/// Whether a name is that of a PHP source, or of a copy that an editor, a backup or a person left
/// of one: behind one of its dots stands `php`, whatever follows, or another of the endings of PHP
/// as a word. A name that ends as what browsers are made to load is not: nobody keeps a copy under
/// such a one.
pub(super) fn is_php(name: &[u8]) -> bool {
    let begins_as = |part: &[u8], word: &[u8]| {
        part.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let is_word = |part: &[u8], word: &[u8]| {
        begins_as(part, word) && !part.get(word.len()).is_some_and(u8::is_ascii_alphabetic)
    };
    let mut parts = name.split(|&byte| byte == b'.').skip(1);
    let is_source = parts.any(|part| {
        begins_as(part, b"php") || OTHER_SOURCES.iter().any(|other| is_word(part, other))
    });
    is_source
        && !ending(name)
            .is_some_and(|last| LOADED.iter().any(|it| last[1..].eq_ignore_ascii_case(it)))
}

const OTHER_SOURCES: [&[u8]; 4] = [b"phtml", b"phar", b"pht", b"inc"];

/// `book.phar.html` of PHP's manual, `jquery.php.js`, `acme.inc.pdf`.
const LOADED: [&[u8]; 7] = [b"css", b"js", b"mjs", b"map", b"html", b"htm", b"pdf"];

/// What is left of a normal path below a prefix such as `/assets`, which is empty for the whole
/// site.
pub(super) fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let Some(prefix) = prefix.strip_prefix(b"/") else {
        return Some(path);
    };
    match path.strip_prefix(prefix)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str) -> Named<'_> {
        Named::File(path.as_bytes().into())
    }

    fn folder(path: &str) -> Named<'_> {
        Named::Folder(path.as_bytes().into())
    }

    #[test]
    fn one_file_has_many_spellings() {
        for path in [
            "/css/a.css",
            "//css///a.css",
            "/./css/./a.css",
            "/%63ss/a%2Ecss",
            "/css/%61.css",
        ] {
            assert_eq!(Named::by(path.as_bytes()), file("css/a.css"), "{path}");
        }
        assert_eq!(Named::by(b"/a%20b+c.txt"), file("a b+c.txt"));
        assert_eq!(
            Named::by(b"/%25"),
            file("%"),
            "decoded once, and no further"
        );
        assert_eq!(Named::by("/ü".as_bytes()), file("ü"));
        assert_eq!(Named::by(b"/a..b"), file("a..b"));
    }

    #[test]
    fn a_slash_at_the_end_is_a_folder() {
        assert_eq!(Named::by(b"/"), folder(""));
        assert_eq!(Named::by(b"//"), folder(""));
        assert_eq!(Named::by(b"/a.css/"), folder("a.css"));
        assert_eq!(Named::by(b"/a/."), folder("a"));
    }

    #[test]
    fn what_climbs_is_told_apart() {
        for path in [
            "/..",
            "/../etc/passwd",
            "/a/../b",
            "/a/..",
            "/%2e%2e/etc/passwd",
            "/.%2E/x",
            "/a/%2e./x",
            "//../x",
        ] {
            assert_eq!(Named::by(path.as_bytes()), Named::Climbs, "{path}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_nothing() {
        for path in [
            "/..%2fetc/passwd",
            "/a%2Fb",
            "/a%5cb",
            "/..\\etc",
            "/a\\b",
            "/a%00.css",
            "/a.php%00.css",
            "/%",
            "/%4",
            "/%zz",
            "/%u002e",
            "*",
            "",
            "a",
        ] {
            assert_eq!(Named::by(path.as_bytes()), Named::Nothing, "{path}");
        }
        // Encoded twice, and in too many bytes: names that nobody has.
        assert_eq!(Named::by(b"/%252e%252e/x"), file("%2e%2e/x"));
        assert!(matches!(Named::by(b"/%c0%ae%c0%ae/x"), Named::File(_)));
        assert_eq!(Named::by(b"/..;/x"), Named::Nothing);
        let long = format!("/{}", "a".repeat(256));
        assert_eq!(Named::by(long.as_bytes()), Named::Nothing);
        let deep = "/a".repeat(2050);
        assert_eq!(Named::by(deep.as_bytes()), Named::Nothing);
    }

    #[test]
    fn an_application_may_encode_its_slashes() {
        let by = |written: &'static str| Named::by_application(written.as_bytes());
        for written in [
            "/files/a%20b.txt",
            "%2Ffiles%2Fa%20b.txt",
            "/files%2fa%20b.txt",
            "/files/a b.txt",
            "%2F%2Ffiles//a%20b.txt",
        ] {
            assert_eq!(by(written), file("files/a b.txt"), "{written}");
        }
        assert_eq!(by("/%C3%BC%5C%252F"), file("ü\\%2F"));
        for written in ["%2F..%2Fx", "/a/%2e%2e/x", "/a%2F..", "/a/.."] {
            assert_eq!(by(written), Named::Climbs, "{written}");
        }
        for written in [
            "",
            "a",
            "a%2Fb",
            "%2Fa%2F.env",
            "/a%00",
            "/a%",
            "%2F.git%2Fx",
        ] {
            assert_eq!(by(written), Named::Nothing, "{written}");
        }
    }

    #[test]
    fn hidden_names_are_nothing() {
        for path in [
            "/.env",
            "/%2eenv",
            "/.git/config",
            "/a/.htaccess",
            "/a/.well-known/x",
            "/...",
            "/.well-known/.x",
            "/.well-knownx",
            "/a/.git/",
        ] {
            assert_eq!(Named::by(path.as_bytes()), Named::Nothing, "{path}");
        }
        assert_eq!(
            Named::by(b"/.well-known/security.txt"),
            file(".well-known/security.txt")
        );
    }

    #[test]
    fn php_sources_in_any_case_and_their_copies() {
        for name in [
            "a.php",
            "a.PHP",
            "a.pHp5",
            "a.php7",
            "a.php81",
            "a.phps",
            "a.phpt",
            "a.phtml",
            "a.PHAR",
            "a.pht",
            "a.inc",
            "a.php~",
            "a.php.bak",
            "a.php.swp",
            "config.inc.php",
            "a.php.gz",
            ".php",
            "config.php_old",
            "config.php-orig",
            "config.php copy",
            "config.php (1)",
            "config.php,v",
            "#config.php#",
            "config.php.2024-01-02",
            "config.php.txt",
            "config.phpold",
            "config.PHPBAK",
            "config.php;1",
            "config.php@",
            "a.php_",
            "a.phpx",
            "shell.php.jpg",
            "a.phtml.bak",
            "a.PHTML~",
            "a.phar.old",
            "a.phar_",
            "a.inc.bak",
            "a.inc~",
            "a.inc-old",
            "a.Inc 2",
            "a.inc2",
            "a.pht.bak",
            "a.tar.php.xz",
            "a.js.php.orig",
        ] {
            assert!(is_php(name.as_bytes()), "{name}");
        }
        for name in [
            "a.css",
            "php",
            "php.txt",
            "php.ini-development",
            "a.inc.js",
            "include",
            "a.xphp",
            "graphp.js",
            "foo.include.js",
            "foo.include.txt",
            "a.incl",
            "a.pharmacy.txt",
            "a.phtmlx",
            "jquery.php.js",
            "jquery.php.min.js",
            "app.php.JS.map",
            "book.phar.html",
            "function.phpversion.html",
            "install.pecl.php-config.html",
            "Acme.inc.pdf",
            "phar",
            "inc.txt",
            "php-logo.svg",
            "my.phx",
        ] {
            assert!(!is_php(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn prefixes_end_at_segments() {
        assert_eq!(below(b"a/b", b""), Some(&b"a/b"[..]));
        assert_eq!(below(b"a/b", b"/a"), Some(&b"b"[..]));
        assert_eq!(below(b"a", b"/a"), Some(&b""[..]));
        assert_eq!(below(b"ab/c", b"/a"), None);
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_folder(path in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), Just(b'f'), Just(b'\\'), any::<u8>()], 0..40,
        )) {
            if let Named::File(named) | Named::Folder(named) = Named::by(&path) {
                let is_fine = |segment: &[u8]| {
                    !matches!(segment, b"" | b"." | b"..") && (segment[0] != b'.' || segment == WELL_KNOWN)
                };
                let all_fine = named.split(|&byte| byte == b'/').all(is_fine);
                prop_assert!(named.is_empty() || all_fine);
                prop_assert!(!named.contains(&0) && !named.contains(&b'\\'));
            }
        }
    }
}
