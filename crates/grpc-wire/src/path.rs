//! The path of a request: which method of which service is called.

/// A method as a path names it: `/package.Service/Method`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodPath {
    /// With its package.
    pub service: String,
    pub method: String,
}

impl MethodPath {
    /// Reads a path. The method is what follows the last slash, as every implementation has it.
    pub fn parse(path: &[u8]) -> Option<Self> {
        let path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
        let (service, method) = path.rsplit_once('/')?;
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
        (is_name(service) && is_name(method)).then(|| Self {
            service: service.to_owned(),
            method: method.to_owned(),
        })
    }

    /// As metrics and records show it.
    pub fn full(&self) -> String {
        format!("/{}/{}", self.service, self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_service_and_a_method() {
        let path = MethodPath::parse(b"/a.b.C/Do").unwrap();
        assert_eq!((&*path.service, &*path.method), ("a.b.C", "Do"));
        assert_eq!(path.full(), "/a.b.C/Do");
        let nested = MethodPath::parse(b"/prefix/a.C/Do").unwrap();
        assert_eq!(nested.service, "prefix/a.C");
    }

    #[test]
    fn what_lacks_a_part_is_no_path() {
        for path in [
            &b"/"[..],
            b"",
            b"a/b",
            b"/a",
            b"/a/",
            b"//b",
            b"/\xff/b",
            b"/a b/c",
        ] {
            assert!(MethodPath::parse(path).is_none(), "{path:?}");
        }
    }
}
