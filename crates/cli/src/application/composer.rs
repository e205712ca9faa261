//! Frameworks that Composer has locked, and packages of ours for them.

use std::path::Path;

use pronghorn_base::read_linked;
use pronghorn_launch::repository_command;
use serde::Deserialize;

/// One of a large application has some hundred kilobytes.
const LONGEST_LOCK_FILE: u64 = 8 << 20;

/// By the package of a framework: its name, and our package that keeps it loaded.
const KEPT: [(&str, &str, &str); 4] = [
    ("laravel/framework", "Laravel", "pronghorn/laravel"),
    (
        "symfony/framework-bundle",
        "Symfony",
        "pronghorn/symfony-runtime",
    ),
    ("roots/wordpress", "WordPress", "pronghorn/wordpress"),
    ("johnpbloch/wordpress", "WordPress", "pronghorn/wordpress"),
];
/// Who has one of these keeps it loaded by another package.
const OTHERS: [&str; 2] = ["laravel/octane", "spiral/roadrunner-worker"];

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    packages: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
}

/// A sentence about the package that is missing, with the command to type.
pub(crate) fn missing_package(folder: &Path) -> Option<String> {
    let text = read_linked(&folder.join("composer.lock"), LONGEST_LOCK_FILE).ok()?;
    let lock: Lock = serde_json::from_slice(&text).ok()?;
    let has = |package: &str| lock.packages.iter().any(|locked| locked.name == package);
    if OTHERS.iter().any(|package| has(package)) {
        return None;
    }
    let mut kept = KEPT.iter();
    let (_, name, package) = kept.find(|(framework, _, ours)| has(framework) && !has(ours))?;
    Some(format!(
        "composer.lock has {name}: {} and `composer require {package}` bring what keeps it loaded \
         between requests",
        repository_command()
    ))
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn a_framework_without_our_package_is_told_the_command() {
        let told = |names: &[&str]| {
            let packages: Vec<String> = names
                .iter()
                .map(|name| format!("{{\"name\": \"{name}\", \"version\": \"1\"}}"))
                .collect();
            let lock = format!("{{\"packages\": [{}]}}", packages.join(","));
            let directory = Directory::with(&[("composer.lock", &*lock)]);
            missing_package(&directory)
        };
        let laravel = told(&["a/b", "laravel/framework"]).unwrap();
        assert!(
            laravel.contains("`composer require pronghorn/laravel`"),
            "{laravel}"
        );
        let symfony = told(&["symfony/framework-bundle"]).unwrap();
        assert!(symfony.contains("pronghorn/symfony-runtime"), "{symfony}");
        assert_eq!(told(&["laravel/framework", "pronghorn/laravel"]), None);
        assert_eq!(told(&["laravel/framework", "laravel/octane"]), None);
        assert_eq!(told(&["slim/slim"]), None);
        assert_eq!(
            missing_package(&Directory::with(&[("composer.lock", "[")])),
            None
        );
    }
}
