//! End-to-end tests: the real binary with real PHP.

#![forbid(unsafe_code)]
