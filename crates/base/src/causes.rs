//! Errors with what caused them.

use std::error::Error;

/// An error with all that caused it, on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_stands_behind_what_it_caused() {
        let inner = io::Error::other(io::Error::other("the disk is full"));
        assert_eq!(with_causes(&inner), "the disk is full");
        #[derive(Debug)]
        struct Outer(io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("not written")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let outer = Outer(io::Error::other("the disk is full"));
        assert_eq!(with_causes(&outer), "not written: the disk is full");
    }
}
