//! Goridge frames and the three codecs: bytes to types and back. No I/O, no clock.

#![forbid(unsafe_code)]
