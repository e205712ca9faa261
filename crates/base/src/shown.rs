//! Bounds what records show of a text that strangers choose: a URI, a header, a name. All that is
//! written down has the one limit, so that no request can fill a disk.

use std::borrow::Cow;
use std::fmt;

/// Bytes of one such text in a record, with what stands for the rest. Longer than nearly all that a
/// browser sends.
const LONGEST: usize = 2 << 10;
/// Bytes of a text that is escaped on its way, escapes included, before a [`LeftOut`].
pub const LONGEST_SHOWN: usize = LONGEST - MARK;
/// Room for a [`LeftOut`].
const MARK: usize = 42;

/// Stands for the rest of a text, of which so many bytes were left out. In ASCII and without a
/// blank: programs that read a line by its blanks still find its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut(pub usize);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "...[{}-bytes-left-out]", self.0)
    }
}

/// A text as a record may show it. What was shown before stays as it is.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST {
        return text.into();
    }
    let end = text.floor_char_boundary(LONGEST_SHOWN);
    let (start, rest) = text.split_at(end);
    format!("{start}{}", LeftOut(rest.len())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_what_is_left_out_and_is_cut_once() {
        let fits = "ä".repeat(LONGEST / 2);
        assert_eq!(shown(&fits), fits);
        for long in [
            "x".repeat(60 << 10),
            "€".repeat(60 << 10),
            format!("{fits}x"),
        ] {
            let once = shown(&long);
            assert!(once.len() <= LONGEST);
            let (start, mark) = once.split_once("...[").expect("it is cut");
            assert!(long.starts_with(start));
            let left_out = LeftOut(long.len() - start.len()).to_string();
            assert_eq!(format!("...[{mark}"), left_out);
            assert_eq!(shown(&once), once);
        }
        assert!(LeftOut(usize::MAX).to_string().len() <= MARK);
    }
}
