//! Certificates that RoadRunner has fetched, in the layout of its library:
//! `certificates/AUTHORITY/NAME/NAME.crt` and `NAME.key`.

use std::fs;
use std::path::Path;

use pronghorn_base::read_plain;

use crate::settings::Directory;
use crate::storage::{Certificate, file};

/// Chains have some ten kilobytes.
const LONGEST_FILE: u64 = 1 << 20;
/// Directories of authorities that are looked at.
const MOST_AUTHORITIES: usize = 16;

/// The certificate for a name that holds longest, as it is kept here.
pub(crate) fn find(cache: &Path, name: &str) -> Option<String> {
    let authorities = fs::read_dir(cache.join("certificates")).ok()?;
    let found = authorities.take(MOST_AUTHORITIES).filter_map(|entry| {
        let entry = entry.ok()?;
        let from = authority(&entry.file_name().to_string_lossy());
        let place = entry.path().join(name);
        let read = |ending: &str| {
            let text = read_plain(&place.join(format!("{name}.{ending}")), LONGEST_FILE);
            String::from_utf8(text.ok()?).ok()
        };
        let text = file(from, &read("key")?, &read("crt")?);
        let certificate = Certificate::parse(&text)?;
        let is_for = certificate.managed.names().iter().any(|it| it == name);
        is_for.then_some((certificate.facts.not_after, text))
    });
    let (_, text) = found.max_by_key(|(not_after, _)| *not_after)?;
    Some(text)
}

/// Its directory, for the authorities that RoadRunner knows by itself.
fn authority(directory: &str) -> &'static str {
    let known = [
        (
            "acme-v02.api.letsencrypt.org-directory",
            Directory::LETS_ENCRYPT,
        ),
        (
            "acme-staging-v02.api.letsencrypt.org-directory",
            Directory::LETS_ENCRYPT_STAGING,
        ),
    ];
    let found = known.into_iter().find(|(name, _)| *name == directory);
    found.map_or("", |(_, url)| url)
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory as Temporary;

    use super::*;

    #[test]
    fn roadrunners_certificate_is_found_by_its_name() {
        let directory = Temporary::new();
        let place = directory
            .join("certificates/acme-v02.api.letsencrypt.org-directory")
            .join("a.example");
        fs::create_dir_all(&place).unwrap();
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        fs::write(place.join("a.example.crt"), made.cert.pem()).unwrap();
        assert_eq!(find(&directory, "a.example"), None, "there is no key");
        fs::write(
            place.join("a.example.key"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
        let found = Certificate::parse(&find(&directory, "a.example").unwrap()).unwrap();
        assert_eq!(found.from, Directory::LETS_ENCRYPT);
        assert_eq!(found.managed.names(), ["a.example"]);
        assert_eq!(find(&directory, "b.example"), None);
        assert_eq!(find(&directory.join("none"), "a.example"), None);
    }
}
