//! What went wrong, as a page shows it, from the different ways in which the server hears of it.

use pronghorn_pool::PhpMessage;
use pronghorn_wire::native::Thrown;

/// The most frames of a trace that are looked at.
const MOST_FRAMES: usize = 100;

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The class of what was thrown, or the kind of an error.
    pub(crate) class: String,
    pub(crate) message: String,
    pub(crate) place: Option<(String, u32)>,
    /// A frame per line, as PHP writes them.
    pub(crate) trace: String,
    /// The whole story, where there is more of it.
    pub(crate) story: String,
}

/// A line of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// As PHP counts them.
    pub(crate) number: String,
    pub(crate) place: Option<(String, u32)>,
    pub(crate) call: String,
}

impl From<&Thrown> for Problem {
    fn from(thrown: &Thrown) -> Self {
        Self {
            class: thrown.class.clone(),
            message: thrown.message.clone(),
            place: Some((thrown.file.clone(), thrown.line)),
            trace: thrown.trace.clone(),
            story: String::new(),
        }
    }
}

impl Problem {
    /// Something without a place in the code.
    pub(crate) fn of_server(message: &str) -> Self {
        Self {
            class: "The request failed".to_owned(),
            message: message.trim_end().to_owned(),
            ..Self::default()
        }
    }

    /// Why workers do not boot. Where PHP has said it, what it said comes first.
    pub(crate) fn of_boot(why: &str) -> Self {
        let said = PhpMessage::find(why);
        let said = said.as_deref().and_then(PhpMessage::parse);
        let mut problem = match said {
            Some(message) => Self::from(&message.thrown()),
            None => Self {
                class: "The workers do not start".to_owned(),
                message: why.lines().next().unwrap_or_default().to_owned(),
                ..Self::default()
            },
        };
        why.clone_into(&mut problem.story);
        problem
    }

    /// The place where it happened, and what leads there.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let here = self.place.clone().map(|place| Frame {
            number: String::new(),
            place: Some(place),
            call: "thrown here".to_owned(),
        });
        let frames = self.trace.lines().filter_map(frame);
        here.into_iter().chain(frames).take(MOST_FRAMES).collect()
    }
}

/// `#0 /srv/a.php(12): f()`, `#1 [internal function]: g()` or `#2 {main}`, which leads nowhere.
fn frame(line: &str) -> Option<Frame> {
    let (number, rest) = line.strip_prefix('#')?.split_once(' ')?;
    let (place, call) = rest.split_once(": ")?;
    let (place, call) = match file_and_line(place) {
        Some(place) => (Some(place), call),
        None if place.starts_with('[') => (None, call),
        // A colon may be in the name of a file.
        None => {
            let at = rest.find("): ")?;
            let (place, call) = rest.split_at_checked(at + 1)?;
            (file_and_line(place), call.get(2..)?)
        }
    };
    Some(Frame {
        number: number.to_owned(),
        place,
        call: call.to_owned(),
    })
}

fn file_and_line(place: &str) -> Option<(String, u32)> {
    let (file, line) = place.strip_suffix(')')?.rsplit_once('(')?;
    Some((file.to_owned(), line.parse().ok()?))
}

/// Whether a file is the application's own, and none of a package.
pub(crate) fn is_of_application(file: &str) -> bool {
    let of_packages = ["/vendor/", "/usr/share/php/", "/share/pronghorn/php/"];
    !of_packages.iter().any(|folder| file.contains(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_apart() {
        let problem = Problem {
            place: Some(("/srv/a.php".into(), 3)),
            trace:
                "#0 /srv/vendor/x/b.php(12): A->f('x: y')\n#1 [internal function]: {closure}()\n\
                    #2 /srv/c: d.php(4): g()\n#3 {main}\nnonsense"
                    .into(),
            ..Problem::default()
        };
        let frames = problem.frames();
        let seen: Vec<_> = frames
            .iter()
            .map(|frame| {
                let place = frame.place.as_ref();
                let place = place.map(|(file, line)| format!("{file}:{line}"));
                (place.unwrap_or_default(), frame.call.as_str())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("/srv/a.php:3".into(), "thrown here"),
                ("/srv/vendor/x/b.php:12".into(), "A->f('x: y')"),
                (String::new(), "{closure}()"),
                ("/srv/c: d.php:4".into(), "g()"),
            ]
        );
        assert!(!is_of_application("/srv/vendor/x/b.php"));
    }

    #[test]
    fn what_php_said_of_a_failed_boot_is_found() {
        let why = "pool `default`: a worker ended before it was ready: exit code 255\n  \
                   command  php worker.php   in /srv\n  \
                   it said  PHP Parse error:  syntax error, unexpected token \"(\" in /srv/w.php on line 7\n           \
                   Parse error: syntax error\nhint: look";
        let problem = Problem::of_boot(why);
        assert_eq!(problem.class, "Parse error");
        assert_eq!(problem.message, "syntax error, unexpected token \"(\"");
        assert_eq!(problem.place, Some(("/srv/w.php".into(), 7)));
        let other = Problem::of_boot("no such program\n  command  x");
        assert_eq!(
            (other.message.as_str(), other.place),
            ("no such program", None)
        );
    }
}
