//! Why an attempt failed.

use pronghorn_wire::native::Thrown;

/// In the words of who reports it, and at length for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    /// For who waits for the job, too: it names no file.
    pub(crate) message: String,
    /// What was thrown, where, and PHP's stack there. For operators alone.
    pub(crate) trace: Option<String>,
}

impl Reason {
    pub(crate) fn thrown(thrown: &Thrown) -> Self {
        let Thrown {
            class,
            message,
            file,
            line,
            trace,
        } = thrown;
        // The place goes on with the sentence.
        let what = message.trim_end().trim_end_matches('.');
        // `exit` is no class, and the message of our package begins with it.
        let class = Some(class).filter(|class| !what.starts_with(class.as_str()));
        let class = class.map_or_else(String::new, |class| format!("{class}: "));
        Self {
            message: message.clone(),
            trace: Some(format!("{class}{what} in {file}:{line}\n{trace}")),
        }
    }

    /// What a worker says, which may be the text that PHP makes of an exception.
    pub(crate) fn reported(text: String) -> Self {
        let Some((first, _)) = text.split_once("\nStack trace:") else {
            return text.into();
        };
        let (what, _place) = first.rsplit_once(" in ").unwrap_or((first, ""));
        Self {
            message: what.to_owned(),
            trace: Some(text),
        }
    }

    /// All that is known.
    pub(crate) fn full(&self) -> &str {
        self.trace.as_deref().unwrap_or(&self.message)
    }

    /// Its first line, for records.
    pub(crate) fn brief(&self) -> &str {
        self.full().lines().next().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.message.len() + self.trace.as_ref().map_or(0, String::len)
    }
}

impl From<String> for Reason {
    fn from(message: String) -> Self {
        Self {
            message,
            trace: None,
        }
    }
}

impl From<&str> for Reason {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_no_file_and_the_trace_begins_with_all_of_it() {
        let thrown = Thrown {
            class: "RuntimeException".to_owned(),
            message: "the shop is closed.".to_owned(),
            file: "/srv/app.php".to_owned(),
            line: 7,
            trace: "#0 {main}".to_owned(),
        };
        let reason = Reason::thrown(&thrown);
        assert_eq!(reason.message, "the shop is closed.");
        let brief = "RuntimeException: the shop is closed in /srv/app.php:7";
        assert_eq!(reason.brief(), brief);
        assert_eq!(reason.full(), format!("{brief}\n#0 {{main}}"));
        let exit = Thrown {
            class: "exit".to_owned(),
            message: "exit() ended the call".to_owned(),
            ..thrown
        };
        let brief = "exit() ended the call in /srv/app.php:7";
        assert_eq!(Reason::thrown(&exit).brief(), brief);
        assert_eq!(Reason::from("busy").brief(), "busy");
        let text = "Error: no in /srv/a.php:3\nStack trace:\n#0 {main}";
        let reported = Reason::reported(text.to_owned());
        assert_eq!((&*reported.message, reported.full()), ("Error: no", text));
        let plain = "no in between";
        assert_eq!(Reason::reported(plain.to_owned()), Reason::from(plain));
    }
}
