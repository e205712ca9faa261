//! Arguments, subcommands, printing, exit codes.

#![forbid(unsafe_code)]
