//! The one life that all services of the server have.

#![forbid(unsafe_code)]
