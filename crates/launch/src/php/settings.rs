//! `pool.ini`, as workers get it: settings of PHP.

/// Settings of PHP for workers, over those of its `php.ini`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ini {
    /// For all workers of the pool.
    pub written: Vec<IniSetting>,
    /// What else suits processes that are kept, for those that `preset` means.
    pub added: Vec<IniSetting>,
    pub preset: Preset,
}

/// One setting of PHP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniSetting {
    pub name: String,
    pub value: String,
    /// It was written in quotes, so that it is a text to php.ini as well.
    pub quoted: bool,
}

/// Whether workers get what is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// If their script uses our package.
    #[default]
    Auto,
    On,
    Off,
}

impl Ini {
    /// What is written, as lines of php.ini have it behind `name=`.
    pub fn written_lines(&self) -> impl Iterator<Item = (&str, String)> {
        let written = self.written.iter();
        written.map(|it| (it.name.as_str(), in_php_ini(&it.value, it.quoted)))
    }

    /// Whether somebody counts on it.
    pub fn is_written(&self) -> bool {
        !self.written.is_empty() || self.preset == Preset::On
    }

    /// The last value that is written for a setting.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut written = self.written.iter().rev();
        let found = written.find(|it| it.name.eq_ignore_ascii_case(name));
        found.map(|it| it.value.as_str())
    }

    /// Whether PHP's sessions are to be in a storage of the server.
    pub fn has_sessions(&self) -> bool {
        self.value("session.save_handler") == Some("pronghorn")
    }

    /// Whether what is written switches on OPcache's JIT, if that has memory.
    pub fn wants_jit(&self) -> bool {
        self.written.iter().any(|it| wants_jit(&it.pair()))
    }
}

impl IniSetting {
    pub(super) fn pair(&self) -> (&str, &str) {
        (&self.name, &self.value)
    }
}

pub(super) fn wants_jit((name, value): &(&str, &str)) -> bool {
    *name == "opcache.jit" && !matches!(*value, "" | "0" | "off" | "no" | "false" | "disable")
}

/// A value as it stands in a line of php.ini: constants of PHP as they are, all else a text.
pub(super) fn in_php_ini(value: &str, quoted: bool) -> String {
    // YAML may want quotes around `E_ALL & ~E_NOTICE`, which nobody means as a text.
    let constants = value.contains("E_") || (!quoted && value.contains('_'));
    if constants && is_expression(value) {
        return value.to_owned();
    }
    // Nothing has a meaning between single quotes, not even a backslash; such a quote itself stands
    // between others.
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

/// Names of constants and numbers with `&`, `|`, `^`, `~`, `!` and parentheses: what php.ini
/// computes. Anything that is none would be a mistake in that file, whose other lines are lost
/// then. A name that no constant has is a text to PHP.
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
