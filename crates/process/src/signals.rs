//! Signals by their names.

use std::fmt;

use rustix::process::Signal as Number;

/// Signals that people name, as the shell's `kill -l` has them without `SIG`.
const NAMES: [(&str, Number); 27] = [
    ("HUP", Number::HUP),
    ("INT", Number::INT),
    ("QUIT", Number::QUIT),
    ("ILL", Number::ILL),
    ("TRAP", Number::TRAP),
    ("ABRT", Number::ABORT),
    ("BUS", Number::BUS),
    ("FPE", Number::FPE),
    ("KILL", Number::KILL),
    ("USR1", Number::USR1),
    ("SEGV", Number::SEGV),
    ("USR2", Number::USR2),
    ("PIPE", Number::PIPE),
    ("ALRM", Number::ALARM),
    ("TERM", Number::TERM),
    ("CHLD", Number::CHILD),
    ("CONT", Number::CONT),
    ("STOP", Number::STOP),
    ("TSTP", Number::TSTP),
    ("TTIN", Number::TTIN),
    ("TTOU", Number::TTOU),
    ("URG", Number::URG),
    ("XCPU", Number::XCPU),
    ("XFSZ", Number::XFSZ),
    ("WINCH", Number::WINCH),
    ("IO", Number::IO),
    ("SYS", Number::SYS),
];

/// A signal that somebody has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedSignal(pub(crate) Number);

impl NamedSignal {
    pub const INTERRUPT: Self = Self(Number::INT);
    pub const TERMINATE: Self = Self(Number::TERM);

    /// By its name, with or without `SIG` and in any case, or by its number.
    pub fn find(text: &str) -> Option<Self> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number: Option<i32> = name.parse().ok();
        let fits =
            |(known, signal): &&(&str, Number)| *known == name || number == Some(signal.as_raw());
        NAMES.iter().find(fits).map(|(_, signal)| Self(*signal))
    }
}

impl fmt::Display for NamedSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.0.as_raw()) {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0.as_raw()),
        }
    }
}

/// Without `SIG`.
pub(crate) fn name(number: i32) -> Option<&'static str> {
    let mut names = NAMES.iter();
    names
        .find(|(_, signal)| signal.as_raw() == number)
        .map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_found_by_name_and_by_number() {
        for text in ["TERM", "SIGTERM", "sigterm", " term ", "15"] {
            assert_eq!(
                NamedSignal::find(text),
                Some(NamedSignal::TERMINATE),
                "{text}"
            );
        }
        for text in ["", "SIG", "TERMINATE", "0", "-15", "99", "SIGSIGTERM"] {
            assert_eq!(NamedSignal::find(text), None, "{text}");
        }
        assert_eq!(NamedSignal::INTERRUPT.to_string(), "SIGINT");
    }
}
