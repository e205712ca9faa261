//! What nobody but its owner may know is replaced before it is written.

/// In its place.
const MASKED: &str = "***";

/// Parts of names, in lower case.
#[derive(Debug, Clone)]
pub(super) struct Mask(pub(super) Vec<String>);

impl Mask {
    /// A field of a request's head.
    pub(super) fn header(&self, name: &str, value: &str) -> String {
        if !self.is_secret(name) {
            // A `Referer`, for instance.
            return self.target(value);
        }
        if !name.eq_ignore_ascii_case("cookie") {
            return MASKED.to_owned();
        }
        // Which cookies there are is worth knowing.
        let cookies = value.split(';').map(|cookie| {
            let name = cookie.split('=').next().unwrap_or_default().trim();
            format!("{name}={MASKED}")
        });
        cookies.collect::<Vec<_>>().join("; ")
    }

    /// What may have a query behind a question mark: the values of secret parameters go.
    pub(super) fn target(&self, text: &str) -> String {
        let Some((before, query)) = text.split_once('?') else {
            return text.to_owned();
        };
        let parameters = query.split('&').map(|parameter| {
            let name = parameter.split('=').next().unwrap_or_default();
            if name.len() < parameter.len() && self.is_secret(&decoded(name)) {
                format!("{name}={MASKED}")
            } else {
                parameter.to_owned()
            }
        });
        format!("{before}?{}", parameters.collect::<Vec<_>>().join("&"))
    }

    fn is_secret(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.0.iter().any(|part| name.contains(part.as_str()))
    }
}

/// A name may be written in another way than it reads.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| byte == b'%');
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask() -> Mask {
        Mask(["token", "auth", "cookie"].map(ToOwned::to_owned).to_vec())
    }

    #[test]
    fn secrets_go_and_names_stay() {
        let mask = mask();
        assert_eq!(mask.header("Authorization", "Bearer abc"), "***");
        assert_eq!(
            mask.header("cookie", "id=abc; theme=dark"),
            "id=***; theme=***"
        );
        assert_eq!(mask.header("Accept", "*/*"), "*/*");
        assert_eq!(
            mask.header("Referer", "https://a/?X_TOKEN=abc&b=1#end"),
            "https://a/?X_TOKEN=***&b=1#end"
        );
        assert_eq!(
            mask.target("/a?%74oken=abc&c&to%6Ben"),
            "/a?%74oken=***&c&to%6Ben"
        );
        assert_eq!(mask.target("/token=abc"), "/token=abc");
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_parameter_is_left(before: String, name in "[a-z%0-9]{0,4}", value in "[A-Z]{8,12}") {
            let text = format!("/?{}&{name}token={value}", before.replace(['&', '='], ""));
            prop_assert!(!mask().target(&text).contains(&value));
        }
    }
}
