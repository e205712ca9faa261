//! The configuration as text, for those who ask a running server.

use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

/// What the files say that hold now. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Arc<Mutex<Texts>>);

#[derive(Debug, Default)]
struct Texts {
    json: String,
    effective: String,
    pending: Option<String>,
}

impl Configuration {
    /// Neither has secrets in it: whoever reaches the server by RPC reads `json`; `effective` is
    /// every value that holds with where it is from, as JSON too.
    pub fn set(&self, json: String, effective: String) {
        let mut texts = lock(&self.0);
        (texts.json, texts.effective) = (json, effective);
    }

    /// What of the files, as they were read last, does not hold, for a person; None when all does.
    pub fn set_pending(&self, pending: Option<String>) {
        lock(&self.0).pending = pending;
    }

    /// As it was set last.
    #[must_use]
    pub fn pending(&self) -> Option<String> {
        lock(&self.0).pending.clone()
    }

    /// Every value that holds with where it is from, the `keys` of `config show --json`.
    #[must_use]
    pub fn effective(&self) -> String {
        lock(&self.0).effective.clone()
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        lock(&self.0).json.clone()
    }
}
