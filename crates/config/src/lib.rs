//! Loading, merging and judging configuration files. Knows no section's meaning.

#![forbid(unsafe_code)]
