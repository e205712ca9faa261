//! Paths with variables, as `google.api.http` writes them: `/v1/{name=shelves/*}/books:list`.

use percent_encoding::percent_decode;

/// A path that requests may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// A word behind a colon at the end.
    verb: Option<String>,
    variables: Vec<Variable>,
}

/// A part between slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Literal(String),
    One,
    /// Any number of parts, at the end.
    Rest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    /// The field of the request that it sets.
    field: String,
    /// Its parts.
    from: usize,
    to: usize,
}

impl Template {
    /// Reads a template.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix('/').ok_or("does not begin with `/`")?;
        let split = path.rsplit_once(':');
        let split = split.filter(|(_, verb)| !verb.contains(['/', '}']));
        let (mut path, verb) = match split {
            Some((path, verb)) => (path, Some(verb.to_owned())),
            None => (path, None),
        };
        if verb.as_ref().is_some_and(String::is_empty) {
            return Err("ends with `:`".to_owned());
        }
        let (mut parts, mut variables) = (Vec::new(), Vec::new());
        loop {
            if let Some(inner) = path.strip_prefix('{') {
                let (variable, behind) = inner.split_once('}').ok_or("has `{` without `}`")?;
                let (field, of) = variable.split_once('=').unwrap_or((variable, "*"));
                let is_name = |name: &str| {
                    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                    !name.is_empty() && name.bytes().all(is_good)
                };
                if !field.split('.').all(is_name) {
                    return Err(format!("has `{field}`, which is no name of a field"));
                }
                let from = parts.len();
                for part in of.split('/') {
                    parts.push(Part::parse(part)?);
                }
                variables.push(Variable {
                    field: field.to_owned(),
                    from,
                    to: parts.len(),
                });
                path = behind;
            } else {
                let (part, behind) = path.split_at(path.find('/').unwrap_or(path.len()));
                parts.push(Part::parse(part)?);
                path = behind;
            }
            if path.is_empty() {
                break;
            }
            path = path.strip_prefix('/').ok_or("has text behind `}`")?;
        }
        let before = parts.len() - 1; // there is one
        if parts[..before].contains(&Part::Rest) {
            return Err("has `**`, and something behind it".to_owned());
        }
        Ok(Self {
            parts,
            verb,
            variables,
        })
    }

    /// The fields that it sets.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| &*variable.field)
    }

    /// By this, more specific ones come first: words before any part, any part before any number.
    /// Templates of the same paths are beside each other.
    pub(super) fn order(&self) -> impl Ord + use<> {
        (self.verb.is_none(), self.parts.clone(), self.verb.clone())
    }

    /// Whether both have the same paths.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.parts, &self.verb) == (&other.parts, &other.verb)
    }

    /// The fields that a path sets, with their values; None of a path that is another.
    pub(super) fn matches(&self, path: &[u8]) -> Option<Vec<(&str, String)>> {
        let mut path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
        if let Some(verb) = &self.verb {
            path = path.strip_suffix(&**verb)?.strip_suffix(':')?;
        }
        let found: Vec<_> = path.split('/').collect();
        let has_rest = self.parts.last() == Some(&Part::Rest);
        let fits = if has_rest {
            found.len() + 1 >= self.parts.len()
        } else {
            found.len() == self.parts.len()
        };
        let same = |(part, found): (&Part, &&str)| match part {
            Part::Literal(word) => decoded(found).as_ref() == Some(word),
            Part::One => !found.is_empty(),
            Part::Rest => true,
        };
        if !fits || !self.parts.iter().zip(&found).all(same) {
            return None;
        }
        let values = self.variables.iter().map(|variable| {
            let Variable { field, from, to } = variable;
            let to = if has_rest && *to == self.parts.len() {
                found.len()
            } else {
                *to
            };
            let parts = found.get(*from..to).unwrap_or_default();
            let is_one = self.parts.get(*from..variable.to) == Some(&[Part::One]);
            let value = match parts {
                [part] if is_one => decoded(part)?,
                // A slash in one of several parts stays apart from those between them.
                parts => {
                    let parts = parts.iter().map(|part| {
                        let kept = part.replace("%2F", "%252F").replace("%2f", "%252f");
                        decoded(&kept)
                    });
                    parts.collect::<Option<Vec<_>>>()?.join("/")
                }
            };
            Some((&**field, value))
        });
        values.collect()
    }
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "*" => Ok(Self::One),
            "**" => Ok(Self::Rest),
            "" => Err("has an empty part".to_owned()),
            text if text.contains(['{', '}', '*', '=']) => {
                Err(format!("has the part `{text}`, which is none"))
            }
            text => Ok(Self::Literal(
                decoded(text).ok_or("is no UTF-8 without its percent signs")?,
            )),
        }
    }
}

fn decoded(part: &str) -> Option<String> {
    let text = percent_decode(part.as_bytes()).decode_utf8().ok()?;
    Some(text.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(template: &str, path: &str) -> Option<Vec<(String, String)>> {
        let template = Template::parse(template).unwrap();
        let found = template.matches(path.as_bytes())?;
        let owned = found
            .into_iter()
            .map(|(field, value)| (field.to_owned(), value));
        Some(owned.collect())
    }

    #[test]
    fn variables_are_found_where_the_template_has_them() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            Some(
                pairs
                    .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                    .collect(),
            )
        };
        for (template, path, expected) in [
            ("/v1/a", "/v1/a", of(&[])),
            ("/v1/a", "/v1/b", None),
            ("/v1/a", "/v1/a/", None),
            ("/v1/{id}", "/v1/7", of(&[("id", "7")])),
            ("/v1/{id}", "/v1/a%20b%2Fc", of(&[("id", "a b/c")])),
            ("/v1/{id}", "/v1/", None),
            ("/v1/{id}", "/v1/%ff", None),
            ("/v1/{a.b}/x", "/v1/7/x", of(&[("a.b", "7")])),
            ("/v1/*/{id}", "/v1/any/7", of(&[("id", "7")])),
            (
                "/{name=s/*/b/*}",
                "/s/1/b/2%2f3",
                of(&[("name", "s/1/b/2%2f3")]),
            ),
            ("/{name=s/*}/b", "/t/1/b", None),
            ("/f/{path=**}", "/f/a/b/c", of(&[("path", "a/b/c")])),
            ("/f/{path=x/**}", "/f/x/a/b", of(&[("path", "x/a/b")])),
            ("/f/**", "/f", of(&[])),
            ("/f/{path=**}", "/f", of(&[("path", "")])),
            ("/v1/{id}:cancel", "/v1/7:cancel", of(&[("id", "7")])),
            ("/v1/{id}:cancel", "/v1/7", None),
            ("/v1/{id}", "/v1/7:cancel", of(&[("id", "7:cancel")])),
        ] {
            assert_eq!(found(template, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in [
            "",
            "v1",
            "/",
            "/a//b",
            "/a/",
            "/{a",
            "/{}",
            "/{a}b",
            "/{a=}",
            "/**/b",
            "/a*",
            "/{a={b}}",
            "/a:",
            "/{a-b}",
            "/{a=**}/b",
        ] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn specific_ones_come_first() {
        let mut all =
            ["/a/{b=**}", "/a/*", "/a/b", "/a/*:c"].map(|it| Template::parse(it).unwrap());
        let expected = [3, 2, 1, 0].map(|at: usize| all[at].clone());
        all.sort_by_key(Template::order);
        assert_eq!(all, expected);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[/{}*:=a.%2F]{0,12}", path in any::<Vec<u8>>()) {
            if let Ok(template) = Template::parse(&text) {
                _ = template.matches(&path); // most fit no template
                _ = template.matches(text.as_bytes());
            }
        }
    }
}
