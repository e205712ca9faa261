//! Texts in which a regular expression is found, to try a configuration with.

use regex_syntax::hir::{Class, ClassBytesRange, Hir, HirKind};

/// Texts of one expression, and of each of its parts.
const MOST_TEXTS: usize = 8;
/// A part that is repeated more often has no text here, and longer texts are left out.
const MOST_TIMES: u32 = 64;
const LONGEST: usize = 200;
/// Signs of a class that stand for themselves.
const SMALL_CLASS: usize = 4;
/// The signs that paths have, the most usual first: one stands for a class.
const USUAL: &[u8] = b"a1-._/A~ ";

/// A few texts, the shortest of each alternative and one that is longer; none where the expression
/// asks for much. Assertions such as `\b` are passed over, so who uses a text tries it.
pub(crate) fn samples(expression: &str) -> Vec<Vec<u8>> {
    let mut parser = regex_syntax::ParserBuilder::new();
    let parsed = parser.unicode(false).utf8(false).build().parse(expression);
    parsed.map_or_else(|_| Vec::new(), |parsed| texts(&parsed))
}

fn texts(hir: &Hir) -> Vec<Vec<u8>> {
    let mut texts = all_texts(hir);
    texts.retain(|text| text.len() <= LONGEST);
    texts
}

fn all_texts(hir: &Hir) -> Vec<Vec<u8>> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => vec![Vec::new()],
        HirKind::Literal(literal) => vec![literal.0.to_vec()],
        HirKind::Class(class) => members(class),
        HirKind::Repetition(repeated) => {
            let least = repeated.min;
            let more = (least == 0 && repeated.max != Some(0)).then_some(1);
            let times = std::iter::once(least).chain(more);
            let parts = texts(&repeated.sub);
            let all = times
                .filter(|times| *times <= MOST_TIMES)
                .flat_map(|times| {
                    let different = if times == 0 { 1 } else { MOST_TEXTS };
                    let parts = parts.iter().take(different);
                    parts.map(move |part| part.repeat(times as usize))
                });
            all.take(MOST_TEXTS).collect()
        }
        HirKind::Capture(capture) => texts(&capture.sub),
        HirKind::Concat(parts) => parts.iter().fold(vec![Vec::new()], |heads, part| {
            let tails = texts(part);
            let all = heads.iter().flat_map(|head| {
                let whole = |tail: &Vec<u8>| [&head[..], tail].concat();
                tails.iter().map(whole)
            });
            all.take(MOST_TEXTS).collect()
        }),
        HirKind::Alternation(parts) => parts.iter().flat_map(texts).take(MOST_TEXTS).collect(),
    }
}

/// All signs of a small class, and one of another: a usual one, if there is one.
fn members(class: &Class) -> Vec<Vec<u8>> {
    let ranges: Vec<_> = match class {
        Class::Bytes(class) => {
            let ranges = class.ranges().iter();
            let of = |range: &ClassBytesRange| range.start().into()..=range.end().into();
            ranges.map(of).collect()
        }
        // A choice between signs becomes one, though Unicode is switched off.
        Class::Unicode(class) => {
            let ranges = class.ranges().iter();
            ranges
                .map(|it| it.start().into()..=it.end().into())
                .collect()
        }
    };
    let all = || ranges.iter().cloned().flatten();
    if all().nth(SMALL_CLASS).is_none() {
        return all().map(|sign| encoded(class, sign)).collect();
    }
    let is_in = |byte: &&u8| ranges.iter().any(|it| it.contains(&u32::from(**byte)));
    let usual = USUAL.iter().find(is_in).map(|byte| u32::from(*byte));
    let one = usual.or_else(|| all().next());
    one.map(|sign| encoded(class, sign)).into_iter().collect()
}

fn encoded(class: &Class, sign: u32) -> Vec<u8> {
    match class {
        Class::Bytes(_) => u8::try_from(sign).into_iter().collect(),
        Class::Unicode(_) => {
            let sign = char::from_u32(sign).map(String::from);
            sign.unwrap_or_default().into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression;

    #[test]
    fn an_expression_is_found_in_its_samples() {
        for written in [
            "",
            "^/private/",
            r"\.sql$",
            r"^/(admin|api/v[0-9]+)/(.*)$",
            r"^/(?:a|b)?c{3}[^/]+$",
            "(?i)^/Login/?$",
            r"[\x00-\x1f]",
            "^(a|b|c|d|e|f|g|h|i|j|k)(l|m|n)$",
            r"^/x\b",
        ] {
            let all = samples(written);
            let compiled = expression::compile(written).expect(written);
            assert!(!all.is_empty() && all.len() <= MOST_TEXTS, "{written}");
            for text in &all {
                let shown = String::from_utf8_lossy(text);
                assert!(compiled.is_match(text), "{written}: {shown}");
            }
        }
        assert_eq!(samples("^/a(b|c)?$"), [&b"/a"[..], b"/ab", b"/ac"]);
        for none in ["a{65}", "(a{60}){4}", "(", "[a&&b]"] {
            assert!(samples(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn there_are_few_texts_of_any_expression() {
        for written in [
            format!("{}a{}", "(".repeat(40), "|b)*".repeat(40)),
            "(((a{64}){64}){64}){64}".to_owned(),
            "(a|b|c)?".repeat(100),
        ] {
            assert!(samples(&written).len() <= MOST_TEXTS, "{written}");
        }
    }
}
