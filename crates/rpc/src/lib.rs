//! The Goridge RPC server and its registry of methods.

#![forbid(unsafe_code)]
