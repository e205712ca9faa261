//! The terminal of a view that is drawn again and again.
//!
//! A frame is one write, from the upper left corner, each line clearing what it leaves of the one
//! before: nothing flickers. Whatever ends the view, the terminal is as it was.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::oneshot;

use crate::exit::write_out;

/// Of a terminal that doesn't say.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// The other screen, without the cursor; back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// What is between these two, a terminal that knows them shows at once; others pass over them.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const END: &str = "\x1b[K\x1b[J\x1b[?2026l";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";

/// Whether there is a screen to draw on, and not a file, a pipe or a teleprinter.
pub(super) fn can_be_redrawn() -> bool {
    io::stdout().is_terminal() && !is_dumb()
}

pub(super) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

/// Columns and rows.
pub(super) fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok();
    let or = |told: Option<u16>, default| told.filter(|n| *n > 0).map_or(default, usize::from);
    (
        or(size.map(|s| s.ws_col), COLUMNS),
        or(size.map(|s| s.ws_row), ROWS),
    )
}

/// A screen of our own. Dropped, the old one is back.
pub(super) struct Screen {
    keys: Option<Keys>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let keys = if io::stdin().is_terminal() {
            Some(Keys::open()?)
        } else {
            None
        };
        let screen = Self { keys };
        write_out(ENTER)?;
        Ok(screen)
    }

    pub(super) fn draw(frame: &str) -> io::Result<()> {
        let lines: Vec<_> = frame.lines().collect();
        let lines = lines.join(&format!("{CLEAR_TO_END_OF_LINE}\r\n"));
        write_out(format!("{BEGIN}{lines}{END}").as_bytes())
    }

    /// Waits until the person wants to leave.
    pub(super) async fn left(&mut self) {
        match &mut self.keys {
            Some(keys) => _ = (&mut keys.end).await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        _ = write_out(LEAVE); // a terminal that is gone has nothing to be put back
    }
}

/// Keys, one by one and not shown. Ctrl-C and Ctrl-Z are keys as well: stopped in the middle, the
/// view would leave the shell without echo.
struct Keys {
    end: oneshot::Receiver<()>,
    before: Termios,
}

impl Keys {
    fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut now = before.clone();
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        let (sender, end) = oneshot::channel();
        // Its read can't be called off; it ends with the command.
        std::thread::spawn(move || {
            until_end(&mut io::stdin().lock());
            _ = sender.send(()); // the view may have ended by something else
        });
        Ok(Self { end, before })
    }
}

fn until_end(keys: &mut impl Read) {
    let mut typed = [0; 64];
    while let Ok(length @ 1..) = keys.read(&mut typed) {
        if ends(typed.get(..length).unwrap_or_default()) {
            return;
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before); // a terminal that is gone needs none
    }
}

/// `q`, Ctrl-C, Ctrl-D, Escape; arrows begin with Escape as well.
fn ends(typed: &[u8]) -> bool {
    matches!(typed, [0x1b])
        || typed.first() != Some(&0x1b) && typed.iter().any(|key| b"qQ\x03\x04".contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_keys_end_the_view() {
        for keys in [&b"q"[..], b"Q", b"\x03", b"\x04", b"\x1b", b"xq"] {
            assert!(ends(keys), "{keys:?}");
        }
        for keys in [&b"x"[..], b"\x1b[A", b"\x1bOq", b"\x1a", b""] {
            assert!(!ends(keys), "{keys:?}");
        }
    }
}
