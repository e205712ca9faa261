//! The configuration as text, for those who ask a running server.

use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

/// What the files say that hold now. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Arc<Mutex<Texts>>);

#[derive(Debug, Default)]
struct Texts {
    json: String,
    shown: String,
    pending: Option<String>,
}

impl Configuration {
    /// Neither has secrets in it: whoever reaches the server by RPC reads `json`; `shown` is every
    /// effective value with where it is from.
    pub fn set(&self, json: String, shown: String) {
        let mut texts = lock(&self.0);
        (texts.json, texts.shown) = (json, shown);
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

    /// Every effective value with where it is from, as `config show` has it.
    #[must_use]
    pub fn shown(&self) -> String {
        lock(&self.0).shown.clone()
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        lock(&self.0).json.clone()
    }
}
