//! Loading, merging and judging configuration files. Knows no section's meaning.
//!
//! Two steps. [`load()`] reads files, includes, variables and `-o` overrides into one tree in which
//! every value knows where it was written ([`Loaded`]). [`Loaded::resolve`] reads that tree through
//! the caller's [`Section`]s into typed settings and collects every mistake on the way
//! ([`Resolved`]). One statement per key, in `Section::read`, is at once its type, its default, its
//! sentence in the reference and what it says about RoadRunner: run over a file it gives the
//! value, run over nothing ([`describe`]) it gives the reference.
//!
//! ```
//! use std::time::Duration;
//! use pronghorn_config::{Input, Section, Severity, Table, load};
//!
//! struct Limits {
//!     workers: usize,
//!     patience: Duration,
//! }
//!
//! impl Section for Limits {
//!     fn read(t: &mut Table<'_>) -> Self {
//!         Self {
//!             workers: t.key("workers", "How many run at once.").range(1..=500).default(2),
//!             patience: t.key("patience", "How long a call may wait.").default(Duration::from_secs(30)),
//!         }
//!     }
//! }
//!
//! let loaded = load(&Input::from_text("app.yaml", "workers: 4\npatience: 60\n"));
//! let resolved = loaded.resolve::<Limits>(Severity::Error);
//! let report = resolved.into_settings().err().expect("a duration needs a unit");
//! assert!(report.to_string().starts_with("error: app.yaml:2:11: `patience`"));
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, missing_docs)]

mod diagnostic;
mod dotenv;
mod era;
mod expand;
mod fuzz;
mod json;
mod key;
mod load;
mod node;
mod place;
mod reference;
mod resolve;
mod schema;
mod secret;
mod setting;
mod show;
mod suggest;
mod table;
mod yaml;

pub use diagnostic::{Diagnostic, Report, Severity};
pub use era::{Compat, Era, is_roadrunners};
pub use fuzz::fuzz_load;
pub use key::Key;
pub use load::{Disk, Input, Loaded, MAIN_FILES, Preset, load};
pub use node::{Entry, Map, Node, Text, Value};
pub use place::{Origin, Place};
pub use reference::{Reference, describe, describe_with};
pub use resolve::{Change, Difference, Effective, Resolved};
pub use schema::schema;
pub use secret::request::RequestMask;
pub use setting::{
    Address, Choice, Command, Endpoint, Listen, Pair, Pairs, Seconds, Setting, Shape, Shown, Size,
    SpacedCommand, Subnet, Wrong, shell_syntax, show_duration,
};
pub use suggest::{meant, nearest};
pub use table::{Section, Table};
