//! What is never shown.

use crate::setting::Shown;

const MASK: &str = "***";

/// By the words in a key's or variable's name: `DB_PASSWORD`, `app_key`, `apiToken`.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let inside = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "credential",
    ];
    if inside.iter().any(|word| name.contains(word)) {
        return true;
    }
    let whole = ["key", "apikey", "pass", "pwd", "salt"];
    name.split(['_', '-', '.'])
        .any(|word| whole.contains(&word))
}

/// True when `value` under the name `key` is the path of a key and not the key.
pub(crate) fn is_key_file(value: &str) -> bool {
    let ending = value.rsplit('.').next().unwrap_or_default();
    value != ending && ["pem", "key", "crt", "cer"].contains(&ending)
}

/// A value as it may be shown: nothing of a secret, and no password inside a URL.
pub(crate) fn masked(value: &str, secret: bool) -> String {
    if secret && !value.is_empty() {
        MASK.to_owned()
    } else {
        without_password(value)
    }
}

pub(crate) fn masked_shown(shown: Shown, secret: bool) -> Shown {
    match shown {
        Shown::One(text) => Shown::One(masked(&text, secret)),
        Shown::List(texts) => Shown::List(texts.iter().map(|text| masked(text, secret)).collect()),
        Shown::Map(mut pairs) => {
            for pair in &mut pairs {
                pair.value = masked(&pair.value, secret || is_secret(&pair.name));
            }
            Shown::Map(pairs)
        }
    }
}

/// `mysql://user:***@host/db`.
fn without_password(value: &str) -> String {
    let found = value.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user_info, _) = authority.rsplit_once('@')?;
        let (user, _) = user_info.split_once(':')?;
        let after = rest.strip_prefix(user_info)?;
        Some(format!("{scheme}://{user}:{MASK}{after}"))
    });
    found.unwrap_or_else(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "password",
            "DB_PASSWORD",
            "APP_KEY",
            "secret",
            "apiToken",
            "key",
            "API-KEY",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["address", "MONKEY", "keyboard", "APP_ENV", "passenger"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_masked() {
        for (value, shown) in [
            (
                "mysql://root:hush@db:3306/app",
                "mysql://root:***@db:3306/app",
            ),
            ("redis://:hu:s@h@cache", "redis://:***@cache"),
            ("tcp://127.0.0.1:6001", "tcp://127.0.0.1:6001"),
            ("https://host/a@b:c", "https://host/a@b:c"),
            ("plain", "plain"),
        ] {
            assert_eq!(masked(value, false), shown);
        }
        assert_eq!(masked("hush", true), "***");
        assert_eq!(masked("", true), "");
    }
}
