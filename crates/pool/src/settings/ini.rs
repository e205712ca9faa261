//! `pool.ini`: settings of PHP. Its words mean what they mean in php.ini, where those in quotes are texts.

use pronghorn_config::{Choice, Pair, Pairs, Table};

use super::Mode;

/// Settings of PHP for workers that use our package, where nothing else is written. They live long and read their code once:
/// OPcache is off on the command line, and there it takes no file that is newer than the process and sees no change of one.
/// Messages go to stderr, once. The JIT is off: it is not without risk, and gains little where most time is spent in C.
pub const INI: &[(&str, &str)] = &[
    ("display_errors", "stderr"),
    ("log_errors", "0"),
    ("html_errors", "0"),
    ("max_execution_time", "0"),
    ("opcache.enable_cli", "1"),
    ("opcache.file_update_protection", "0"),
    ("opcache.revalidate_freq", "0"),
    ("opcache.jit", "disable"),
];
/// More than PHP itself has.
const MOST_INI: usize = 1000;

/// Settings of PHP for workers, over those of its `php.ini`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ini {
    /// For all workers of the pool.
    pub written: Pairs,
    /// What [`INI`] has besides, for those that it suits.
    pub added: Pairs,
    pub preset: Preset,
}

/// Whether a setting of PHP switches on OPcache's JIT, if that has memory.
pub(crate) fn wants_jit((name, value): &(&str, &str)) -> bool {
    *name == "opcache.jit" && !matches!(*value, "" | "0" | "off" | "no" | "false" | "disable")
}

impl Ini {
    /// What is written, as lines of php.ini have it behind `name=`.
    pub fn written_lines(&self) -> impl Iterator<Item = (&str, String)> {
        let written = self.written.0.iter();
        written.map(|pair| (pair.name.as_str(), in_php_ini(&pair.value, pair.quoted)))
    }

    /// Whether somebody counts on it.
    pub fn is_written(&self) -> bool {
        !self.written.0.is_empty() || self.preset == Preset::On
    }
}

/// Whether workers get [`INI`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// If their script uses our package.
    #[default]
    Auto,
    On,
    Off,
}

impl Choice for Preset {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> Ini {
    let preset = t
        .key(
            "ini_preset",
            "Whether workers get the defaults of `ini`; `auto`: if their script names `Pronghorn\\`, as those of our \
             package do.",
        )
        .ours()
        .default(Preset::Auto);
    // What is shown is what they get.
    let suits = match (mode, preset) {
        (Mode::Worker, Preset::Auto | Preset::On) | (Mode::Classic, Preset::On) => true,
        (Mode::Worker | Mode::Classic | Mode::FastCgi | Mode::Cgi, _) => false,
    };
    let (mut written, added) = t
        .key(
            "ini",
            "Settings of PHP for workers, over those of its `php.ini`. What is not written is for workers that `ini_preset` \
             means.",
        )
        .ours()
        .over(if suits { INI } else { &[] }, "settings that suit kept processes, see [PHP's settings](../operations/php-settings.md)");
    if written.0.len() > MOST_INI {
        t.error(
            "ini",
            &format!(
                "has {} settings; at most {MOST_INI} are taken",
                written.0.len()
            ),
            "put them into php.ini",
        );
    }
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    for (name, value) in written.iter() {
        if !plain(name) {
            t.error(
                "ini",
                &format!(
                    "has `{}`, which is no name of a setting",
                    name.escape_debug()
                ),
                "write it as in php.ini, `opcache.memory_consumption: 256` for instance",
            );
        } else if value.contains(['\n', '\r', '\0']) {
            t.error(
                "ini",
                &format!("has a value for `{name}` with a line end"),
                "put this one into php.ini",
            );
        }
    }
    for pair in &mut written.0 {
        if let Some(meaning) = meaning(pair) {
            meaning.clone_into(&mut pair.value);
        }
    }
    Ini {
        written,
        added,
        preset,
    }
}

/// What a word means that is not in quotes: php.ini's for yes and no, in any case. None is as written.
fn meaning(pair: &Pair) -> Option<&'static str> {
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|word| pair.value.eq_ignore_ascii_case(word))
    };
    match () {
        () if pair.quoted => None,
        () if is(&["on", "yes", "true"]) => Some("1"),
        () if is(&["off", "no", "false", "none", "null"]) => Some(""),
        () => None,
    }
}

/// A value as it stands in a line of php.ini: constants of PHP as they are, all else a text.
pub(crate) fn in_php_ini(value: &str, quoted: bool) -> String {
    // YAML may want quotes around `E_ALL & ~E_NOTICE`, which nobody means as a text.
    let constants = value.contains("E_") || (!quoted && value.contains('_'));
    if constants && is_expression(value) {
        return value.to_owned();
    }
    // Nothing has a meaning between single quotes, not even a backslash; such a quote itself stands between others.
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

/// Names of constants and numbers with `&`, `|`, `^`, `~`, `!` and parentheses: what php.ini computes. Anything that is none
/// would be a mistake in that file, whose other lines are lost then. A name that no constant has is a text to PHP.
fn is_expression(value: &str) -> bool {
    let mut open = 0_usize;
    // Between two operands there is one operator.
    let mut wants_operand = true;
    let mut rest = value.trim();
    while let Some(first) = rest.bytes().next() {
        let is_name = |c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_';
        let word = rest.find(is_name).unwrap_or(rest.len());
        match first {
            b' ' | b'~' | b'!' if wants_operand || first == b' ' => {}
            b'(' if wants_operand => open += 1,
            b')' if !wants_operand && open > 0 => open -= 1,
            b'&' | b'|' | b'^' if !wants_operand => wants_operand = true,
            _ if word > 0 && wants_operand => wants_operand = false,
            _ => return false,
        }
        rest = rest.get(word.max(1)..).unwrap_or_default();
    }
    open == 0 && !wants_operand
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_computed_stands_as_it_is() {
        for value in [
            "E_ALL",
            "E_ALL & ~E_DEPRECATED",
            "E_ALL&~(E_NOTICE|E_STRICT)",
            "E_ALL ^ E_NOTICE",
            "~ E_ALL",
            "(E_ALL)",
            " E_ALL ",
            "E_ALL | 8192",
            "!E_ALL",
        ] {
            assert_eq!(in_php_ini(value, false), value);
            assert_eq!(in_php_ini(value, true), value, "YAML's quotes");
        }
        assert_eq!(in_php_ini("PHP_INT_MAX", false), "PHP_INT_MAX");
        assert_eq!(in_php_ini("PHP_INT_MAX", true), "'PHP_INT_MAX'");
    }

    #[test]
    fn all_else_is_a_text() {
        for value in [
            "",
            "stderr",
            "256M",
            "-1",
            ".:/a b;c",
            "${HOME}",
            "a=b",
            "\"x\"",
            "\\",
            "UTC",
            "E_ALL &",
            "E_ALL E_STRICT",
            "(E_ALL",
            "E_ALL)",
            "E_ALL (",
            "& E_ALL",
            "E_ALL; x",
            "E_ALL $",
            "e_all",
            "E_ä",
            "E_A ~",
            "E_A ~ E_B",
        ] {
            assert_eq!(in_php_ini(value, false), format!("'{value}'"));
        }
        assert_eq!(in_php_ini("it's", false), "'it'\"'\"'s'");
    }
}
