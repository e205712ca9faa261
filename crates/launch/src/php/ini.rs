//! Settings of PHP as options of its command line: no file that somebody could remove or replace
//! while the server runs, and nothing that a worker could be started without.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::settings::{Ini, IniSetting, Preset, in_php_ini, wants_jit};
use super::{About, Program};

/// Says which settings were given. It is the last of them, and PHP passes over all that follows a
/// line that it can't read: a PHP that knows it has read all of them.
const DIGEST: &str = "pronghorn.settings";

/// Options of a PHP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Each is what stands behind `-d`.
    options: Vec<String>,
}

impl Settings {
    pub(super) fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    pub(super) fn add(&mut self, name: &str, value: &str, quoted: bool) {
        self.options.push(option(name, &in_php_ini(value, quoted)));
    }

    /// What a worker that has all of them says of itself.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.options.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The arguments, to stand before all others: those of the command win.
    pub(super) fn arguments(&self) -> impl Iterator<Item = OsString> {
        let digest = option(DIGEST, &in_php_ini(&self.digest(), true));
        let options = self.options.iter().cloned().chain([digest]);
        options.flat_map(|option| ["-d".into(), option.into()])
    }
}

/// A limit of PHP's own files stays: the preset's is for where there is none.
const MEMORY_LIMIT: &str = "memory_limit";
/// The words of PHP about it then.
const UNLIMITED: &str = "-1";

/// The limit for the memory of a call, by these settings or by PHP's own files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// Nobody was asked, or the answer is no number of bytes.
    #[default]
    Unknown,
    None,
    Bytes(u64),
}

impl MemoryLimit {
    pub(super) fn of(settings: &Settings, about: &About) -> Self {
        let given = settings.options.iter().rev().find_map(|option| {
            let (name, value) = option.split_once('=')?;
            (name == MEMORY_LIMIT).then(|| value.trim_matches('\''))
        });
        Self::parse(given.unwrap_or(&about.memory_limit))
    }

    /// As PHP writes numbers of bytes: `128M`.
    fn parse(value: &str) -> Self {
        let value = value.trim();
        if value == UNLIMITED {
            return Self::None;
        }
        let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match value.get(number.len()..) {
            Some("") => 1,
            Some("K" | "k") => 1 << 10,
            Some("M" | "m") => 1 << 20,
            Some("G" | "g") => 1 << 30,
            _ => return Self::Unknown,
        };
        let bytes = number.trim().parse().ok();
        let bytes = bytes.and_then(|bytes: u64| bytes.checked_mul(unit));
        bytes.map_or(Self::Unknown, Self::Bytes)
    }
}

/// A setting behind `-d`, with its value as php.ini has it. PHP puts what begins with another
/// character than a letter, a digit or a quotation mark between quotation marks, which makes a text
/// of what it is to compute.
pub fn option(name: &str, value: &str) -> String {
    let computes = value.trim_start().starts_with(['~', '!', '(']);
    let value = value.trim_start();
    let before = if computes { "0|" } else { "" };
    format!("{name}={before}{value}")
}

/// The pool's settings: what is written, and the preset where it is meant for such workers.
pub(super) fn of_pool(ini: &Ini, about: &About, program: &Program, pool: &str) -> Settings {
    let preset = match ini.preset {
        Preset::On => true,
        Preset::Off => false,
        Preset::Auto => program.uses_package(),
    };
    let has_limit = about.memory_limit != UNLIMITED;
    let added = ini
        .added
        .iter()
        .filter(|it| preset && !(has_limit && it.name == MEMORY_LIMIT));
    let settings = added.chain(&ini.written).map(IniSetting::pair);
    let mut settings: Vec<(&str, &str)> = settings.collect();
    let mut options = Settings::default();
    if preset && about.could_have_opcache {
        options.add("zend_extension", "opcache", true);
    }
    if settings.iter().any(wants_jit) && !about.against_jit.is_empty() {
        tracing::warn!(
            target: "server", pool,
            "`ini.opcache.jit` is not used: PHP switches the JIT off where these extensions are: \
             {}", about.against_jit
        );
        settings.retain(|setting| !wants_jit(setting));
        settings.push(("opcache.jit", "disable"));
    }
    if drops_jit(&settings, ini, about, program) {
        let mode = &about.jit;
        tracing::info!(
            target: "server", pool,
            "php.ini switches OPcache's JIT on, but these workers run without it (`ini: \
             {{opcache.jit: {mode}}}` switches it on, `ini: {{opcache.jit: disable}}` turns this \
             warning off)"
        );
    }
    for (name, value) in settings {
        let mut written = ini.written.iter();
        let quoted = written.any(|it| it.name == name && it.quoted);
        options.add(name, value, quoted);
    }
    options
}

/// Whether the preset, and nothing that was written, takes away a JIT that PHP would have.
fn drops_jit(settings: &[(&str, &str)], ini: &Ini, about: &About, program: &Program) -> bool {
    let names = |(name, _): &(&str, &str)| *name == "opcache.jit";
    // An option of the command wins.
    let is_option = |option: &OsString| option.to_string_lossy().contains("opcache.jit");
    settings.iter().any(names)
        && !ini.written.iter().any(|it| names(&it.pair()))
        && wants_jit(&("opcache.jit", &about.jit))
        && !program.options.iter().any(is_option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_memory_is_read_as_php_writes_it() {
        for (value, limit) in [
            ("-1", MemoryLimit::None),
            ("128M", MemoryLimit::Bytes(128 << 20)),
            (" 1g ", MemoryLimit::Bytes(1 << 30)),
            ("512k", MemoryLimit::Bytes(512 << 10)),
            ("67108864", MemoryLimit::Bytes(64 << 20)),
            ("much", MemoryLimit::Unknown),
            ("99999999999999999999", MemoryLimit::Unknown),
            ("18446744073709551615G", MemoryLimit::Unknown),
        ] {
            assert_eq!(MemoryLimit::parse(value), limit, "{value}");
        }
    }

    #[test]
    fn the_digest_is_the_last_setting_and_another_one_for_other_settings() {
        let mut settings = Settings::default();
        let empty = settings.digest();
        settings.add("memory_limit", "64M", false);
        let digest = settings.digest();
        assert_ne!(digest, empty);
        let arguments: Vec<_> = settings.arguments().collect();
        let last = format!("pronghorn.settings='{digest}'");
        assert_eq!(arguments, ["-d", "memory_limit='64M'", "-d", &last]);
        settings.add("precision", "5", false);
        assert_ne!(settings.digest(), digest);
    }

    #[test]
    fn what_php_computes_begins_so_that_it_still_does_behind_an_option() {
        for (value, expected) in [
            ("E_ALL & ~E_NOTICE", "x=E_ALL & ~E_NOTICE"),
            ("~E_NOTICE", "x=0|~E_NOTICE"),
            (" (E_ALL)", "x=0|(E_ALL)"),
            ("!E_ALL", "x=0|!E_ALL"),
            ("'~E_NOTICE'", "x='~E_NOTICE'"),
            ("''", "x=''"),
        ] {
            assert_eq!(option("x", value), expected);
        }
    }
}
