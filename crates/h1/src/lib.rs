//! HTTP/1.1 as a state machine without I/O.

#![forbid(unsafe_code)]
