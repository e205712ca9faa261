//! The environment of a process before its start.

use std::ffi::OsString;

/// The last value of a variable is the one that counts.
pub(crate) fn set(variables: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    variables.retain(|(known, _)| known != name);
    variables.push((name.into(), value));
}
