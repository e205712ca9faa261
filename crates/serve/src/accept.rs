//! Lists of what a client takes, with weights (RFC 9110, section 12.4.2).

use pronghorn_wire::Fields;

/// The items of all fields of this name, which is in lower case, each with its weight in
/// thousandths: 0 is what the client does not take. What is no weight counts as none given.
pub fn weighed<'a>(
    fields: &'a Fields,
    name: &'static str,
) -> impl Iterator<Item = (&'a [u8], u16)> {
    let lists = fields.all(name);
    lists.flat_map(|list| list.split(|&byte| byte == b',').map(item))
}

/// How much a client wants what has this type, in thousandths, if it names it in `Accept`. 0 where
/// it does not, or does not take it.
pub fn wanted(fields: &Fields, media: &str) -> u16 {
    let named = weighed(fields, "accept");
    let named = named.filter(|(name, _)| name.eq_ignore_ascii_case(media.as_bytes()));
    named.map(|(_, weight)| weight).max().unwrap_or(0)
}

/// An item of a list, without what stands behind it, and its weight.
fn item(item: &[u8]) -> (&[u8], u16) {
    let mut parts = item.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let weights = parts.filter_map(|part| match part {
        [b'q' | b'Q', value @ ..] => thousandths(value.trim_ascii_start().strip_prefix(b"=")?),
        _ => None,
    });
    (name, weights.fold(1000, |_, weight| weight))
}

fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.trim_ascii().split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut value = match whole {
        b'0' => 0,
        b'1' => 1,
        _ => return None,
    };
    for place in 0..3 {
        let digit = digits.get(place).unwrap_or(&b'0');
        value = value * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_wanted_as_much_as_it_is_weighed() {
        for (accept, weight) in [
            ("text/html", 1000),
            ("TEXT/HTML;level=1;q=0.5", 500),
            ("a/b, text/html;q=0", 0),
            ("text/html;q=0.2, text/html;level=1;q=0.25", 250),
            ("text/html;q=2", 1000),
            ("*/*", 0),
            ("text/htmlx", 0),
            ("", 0),
        ] {
            let fields = [("accept", accept)].into_iter().collect();
            assert_eq!(wanted(&fields, "text/html"), weight, "{accept}");
        }
        let two = [("accept", "a/b"), ("accept", "text/html;q=0.1")];
        assert_eq!(wanted(&two.into_iter().collect(), "text/html"), 100);
    }
}
