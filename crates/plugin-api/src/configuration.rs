//! The configuration as text, for those who ask a running server.

use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

/// What the files say that hold now. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Arc<Mutex<String>>);

impl Configuration {
    /// `json` has no secrets in it: whoever reaches the server by RPC reads it.
    pub fn set(&self, json: String) {
        *lock(&self.0) = json;
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        lock(&self.0).clone()
    }
}
