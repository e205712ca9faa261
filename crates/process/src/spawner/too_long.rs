//! Arguments and variables that the system does not take, told such that somebody can mend it.

use std::ffi::{OsStr, OsString};
use std::io;

use rustix::process::{Resource, getrlimit};
use thiserror::Error;

/// Bytes of one argument or variable with the NUL behind it, in pages (`MAX_ARG_STRLEN`).
const PAGES_OF_ONE: usize = 32;
/// All together may have a quarter of the stack, and these bounds (`_STK_LIM / 4 * 3`, `ARG_MAX`).
const MOST_OF_ALL: usize = 6 << 20;
const LEAST_OF_ALL: usize = 128 << 10;

/// The operator's: an environment or a command line is longer than the system takes. Values are not
/// told, for they may be secrets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TooLong {
    /// It alone is too long.
    #[error(
        "argument list too long: {what} has {length} bytes, and the system takes {limit} of each"
    )]
    One {
        what: String,
        length: usize,
        limit: usize,
    },
    /// They are, all together.
    #[error(
        "argument list too long: all arguments and variables have {length} bytes, and the system \
         takes {limit}; {longest} is the longest one with {longest_length}"
    )]
    All {
        length: usize,
        limit: usize,
        longest: String,
        longest_length: usize,
    },
}

impl TooLong {
    /// The reason why no program can be started with this, if there is one.
    pub fn find(args: &[OsString], env: &[(OsString, OsString)]) -> Option<Self> {
        let sizes = Sizes::of(args, env);
        let (is_one, is_all) = (
            sizes.longest.1 > longest_of_one(),
            sizes.all > longest_of_all(),
        );
        (is_one || is_all).then(|| sizes.why())
    }

    /// The reason in place of the system's word for it, which names nothing.
    pub(super) fn explain(
        error: io::Error,
        args: &[OsString],
        env: &[(OsString, OsString)],
    ) -> io::Error {
        match error.kind() {
            io::ErrorKind::ArgumentListTooLong => {
                io::Error::new(error.kind(), Sizes::of(args, env).why())
            }
            _ => error,
        }
    }
}

/// Lengths without the NUL behind each.
struct Sizes {
    longest: (String, usize),
    /// With what else the system counts.
    all: usize,
}

impl Sizes {
    fn of(args: &[OsString], env: &[(OsString, OsString)]) -> Self {
        let args = (1..).zip(args);
        let args = args.map(|(number, arg)| (None, number, arg.len()));
        let variables = env.iter().map(|(name, value)| {
            let length = name.len().saturating_add(value.len()).saturating_add(1);
            (Some(name), 0, length)
        });
        let (mut longest, mut all) = ((None, 0, 0), 0_usize);
        for one in args.chain(variables) {
            if one.2 > longest.2 {
                longest = one;
            }
            // With a NUL and a pointer to it.
            all = all.saturating_add(one.2 + 1 + size_of::<usize>());
        }
        let (variable, number, length) = longest;
        let what = match variable {
            Some(name) => format!("the variable `{}`", shown(name)),
            None => format!("argument {number} of the command"),
        };
        Self {
            longest: (what, length),
            all,
        }
    }

    fn why(self) -> TooLong {
        let Self {
            longest: (what, length),
            all,
        } = self;
        let limit = longest_of_one();
        if length > limit {
            return TooLong::One {
                what,
                length,
                limit,
            };
        }
        TooLong::All {
            length: all,
            limit: longest_of_all(),
            longest: what,
            longest_length: length,
        }
    }
}

/// A name may be anything.
fn shown(name: &OsStr) -> String {
    const LONGEST: usize = 60;
    let name = name.to_string_lossy();
    let start: String = name.chars().take(LONGEST).collect();
    let mark = if start.len() < name.len() { "…" } else { "" };
    format!("{}{mark}", start.escape_debug())
}

fn longest_of_one() -> usize {
    PAGES_OF_ONE * rustix::param::page_size() - 1
}

/// A server that has no limit for its stack has this one.
fn longest_of_all() -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    let quarter = usize::try_from(stack / 4).unwrap_or(usize::MAX);
    quarter.clamp(LEAST_OF_ALL, MOST_OF_ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(lengths: &[(&str, usize)]) -> Vec<(OsString, OsString)> {
        let variable = |&(name, length): &(&str, usize)| (name.into(), "x".repeat(length).into());
        lengths.iter().map(variable).collect()
    }

    #[test]
    fn what_is_too_long_is_named_with_its_length_and_the_limit() {
        let limit = longest_of_one();
        let args = [OsString::from("-r"), OsString::from("x".repeat(500))];
        assert_eq!(
            TooLong::find(&args, &variables(&[("A", limit - 2), ("B", 3)])),
            None
        );
        let one = TooLong::find(&args, &variables(&[("B", 3), ("A", limit - 1)])).unwrap();
        let said = format!(
            "argument list too long: the variable `A` has {} bytes, and the system takes {limit} \
             of each",
            limit + 1
        );
        assert_eq!(one.to_string(), said);
        let long = [OsString::from("-r"), OsString::from("x".repeat(limit + 1))];
        let said = TooLong::find(&long, &[]).unwrap().to_string();
        assert!(said.contains("argument 2 of the command"), "{said}");
        let many: Vec<_> = (0..70).map(|n| (format!("V{n}"), 100_000 + n)).collect();
        let many: Vec<_> = many.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let all = TooLong::find(&[], &variables(&many)).unwrap().to_string();
        let limit = longest_of_all().to_string();
        for part in [
            &*limit,
            "7003",
            "the variable `V69` is the longest one with 100073",
        ] {
            assert!(all.contains(part), "{all}");
        }
    }

    #[test]
    fn a_name_ends_somewhere_and_says_nothing_to_a_terminal() {
        let name = format!("\u{1b}[2J{}", "n".repeat(100));
        let said = shown(OsStr::new(&name));
        assert!(
            said.starts_with("\\u{1b}[2Jn") && said.ends_with("n…"),
            "{said}"
        );
    }
}
