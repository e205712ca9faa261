//! Records that a test makes.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::{DefaultGuard, set_default};

/// Records of the thread that has made it, as long as it is there.
#[derive(Debug)]
pub struct Records {
    text: Text,
    _subscriber: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Records {
    #[expect(clippy::new_without_default, reason = "it sets what gets them")]
    pub fn new() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _subscriber: set_default(subscriber),
        }
    }

    /// A line each, without the time.
    pub fn text(&self) -> String {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
