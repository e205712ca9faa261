//! The numbers of the native codec: the one source of them in Rust, in C and in PHP.
//!
//! `ext/pronghorn/native_numbers.h` and `php/worker/src/Internal/Native.php` are made from this
//! file; a test compares.

use std::fmt::Write;

use crate::frame::{MIN_HEADER, WORKER_HEADER};

/// Declares constants, and lists them with their comments for the other languages.
macro_rules! numbers {
    ($($group:literal { $(#[doc = $comment:literal] $name:ident: $type:ty = $value:expr;)+ })+) => {
        $($(#[doc = $comment] pub const $name: $type = $value;)+)+

        const GROUPS: &[(&str, &[Number])] = &[$(($group, &[$(Number {
            name: stringify!($name),
            comment: $comment,
            value: $name as u64,
            is_byte: size_of::<$type>() == 1,
        }),+])),+];
    };
}

struct Number {
    name: &'static str,
    comment: &'static str,
    value: u64,
    is_byte: bool,
}

numbers! {
    "Versions and sizes" {
        /// The version of this codec; named in both control frames of the handshake.
        VERSION: u32 = 1;
        /// Bytes of a frame from which its length follows.
        FRAME_START: usize = MIN_HEADER;
        /// A frame's header with its one option, the length of the context.
        FRAME: usize = WORKER_HEADER;
        /// Bytes that every context starts with: kind, flags, a small number, the call's number.
        ENVELOPE: usize = 8;
        /// A call's context before what depends on its kind: envelope, when accepted, time left.
        CALL_HEAD: usize = ENVELOPE + 12;
        /// A request's context before its table.
        REQUEST_HEAD: usize = CALL_HEAD + 8;
        /// Strings of a request's text before its headers.
        LINE: usize = 6;
        /// A job's context before its table.
        JOB_HEAD: usize = CALL_HEAD + 20;
        /// A gRPC call's context before its table.
        GRPC_HEAD: usize = CALL_HEAD + 8;
        /// A TCP call's context before its strings.
        TCP_HEAD: usize = CALL_HEAD + 20;
        /// The longest payload that a worker takes: longer bodies come as files.
        MAX_PAYLOAD: u32 = 64 << 20;
        /// The longest context that the server takes: no client would take a head so large.
        MAX_CONTEXT: u32 = 1 << 20;
        /// The longest state that the server keeps for a connection.
        MAX_STATE: u32 = 64 << 10;
        /// The longest argument of a method that a worker calls: longer ones go by RPC.
        MAX_ARGUMENT: u32 = 1 << 20;
        /// No limit, where a time is expected.
        NO_LIMIT: u32 = u32::MAX;
        /// In how many microseconds a worker counts how long it was at work after its reply.
        REST_UNIT_US: u16 = 10;
    }
    "Kinds of messages to a worker" {
        /// A call of kind `http`.
        KIND_REQUEST: u8 = 0x01;
        /// A call of kind `script`.
        KIND_SCRIPT: u8 = 0x02;
        /// A call of kind `raw`.
        KIND_RAW: u8 = 0x03;
        /// A call of kind `job`.
        KIND_JOB: u8 = 0x04;
        /// A call of kind `grpc`.
        KIND_GRPC: u8 = 0x05;
        /// A call of kind `tcp`.
        KIND_TCP: u8 = 0x08;
        /// The client of this call has left.
        KIND_CANCEL: u8 = 0x10;
        /// Asks whether the worker lives.
        KIND_PING: u8 = 0x11;
        /// A piece of a streamed request.
        KIND_BODY: u8 = 0x12;
        /// What a method of the server returned.
        KIND_ANSWER: u8 = 0x13;
    }
    "Kinds of messages to the server" {
        /// The reply to a call, or the beginning of it.
        KIND_REPLY: u8 = 0x81;
        /// A further piece of a reply.
        KIND_CHUNK: u8 = 0x82;
        /// A 1xx reply before the real one.
        KIND_INFORMATIONAL: u8 = 0x83;
        /// The handler threw.
        KIND_ERROR: u8 = 0x84;
        /// Asks for more time.
        KIND_EXTEND: u8 = 0x85;
        /// A worker that was busy after its reply takes calls again.
        KIND_FREE: u8 = 0x86;
        /// Asks for the next piece of a streamed request.
        KIND_WANT: u8 = 0x87;
        /// Asks for new workers.
        KIND_RENEW: u8 = 0x88;
        /// A mistake in the application that ended no call.
        KIND_REMARK: u8 = 0x89;
        /// What the time of a call was spent on.
        KIND_SPENT: u8 = 0x8A;
        /// What the application calls the call's route.
        KIND_ROUTE: u8 = 0x8B;
        /// A record for the log.
        KIND_LOG: u8 = 0x8C;
        /// Calls a method of the server.
        KIND_ASK: u8 = 0x8D;
        /// What the application has counted.
        KIND_COUNTS: u8 = 0x8E;
        /// What PHP writes to its log.
        KIND_MESSAGE: u8 = 0x8F;
        /// The answer to a ping.
        KIND_PONG: u8 = 0x91;
    }
    "Small numbers of answers" {
        /// The body is the result, as JSON.
        ANSWER_RESULT: u16 = 0;
        /// The body is a text: why there is none.
        ANSWER_FAILURE: u16 = 1;
    }
    "Small numbers of replies to jobs" {
        /// It is done.
        JOB_DONE: u16 = 0;
        /// It has failed, and no other attempt would help.
        JOB_FAILED: u16 = 1;
        /// It is to run again, at the time that follows the envelope.
        JOB_RETRY: u16 = 2;
        /// It is done, and the body says why it has no result.
        JOB_DONE_WITHOUT: u16 = 3;
    }
    "Small numbers of TCP calls" {
        /// A client has connected.
        TCP_CONNECTED: u16 = 0;
        /// The body is a message of the client.
        TCP_DATA: u16 = 1;
        /// The connection has ended.
        TCP_CLOSED: u16 = 2;
    }
    "Small numbers of replies to TCP calls, which are added" {
        /// The connection ends once the body is sent.
        TCP_CLOSE: u16 = 1;
        /// A new state of the connection follows the envelope.
        TCP_STATE: u16 = 2;
    }
    "Flags" {
        /// Of requests and replies: the body is the path of a file.
        BODY_FILE: u8 = 0x01;
        /// Of requests: the body is a form.
        FORM: u8 = 0x02;
        /// In requests and TCP calls: the client's connection was encrypted.
        TLS: u8 = 0x04;
        /// Of requests: details of errors may be shown to the client.
        DEVELOPMENT: u8 = 0x08;
        /// Of requests: the body is asked for piece by piece.
        BODY_STREAM: u8 = 0x10;
        /// Of calls: before the end of its reply the worker tells what the time was spent on.
        TIMED: u8 = 0x20;
        /// Of jobs: the reply's body is to be what the handler returns, for somebody waits for it.
        WANTS_RESULT: u8 = 0x40;
        /// In gRPC calls: the reply may have any number of messages.
        STREAMS: u8 = 0x04;
        /// Of the end of a reply: the worker is not free yet, and will say when it is.
        BUSY: u8 = 0x02;
        /// Of the end of a reply: the worker takes no further call.
        LEAVING: u8 = 0x04;
        /// Of messages for the log: PHP itself has put it into words, and no `error_log()`.
        BY_PHP: u8 = 0x01;
        /// Of any message: a receiver that does not know its kind ignores it.
        IGNORABLE: u8 = 0x80;
    }
}

impl Number {
    /// As the other languages call it.
    fn name(&self) -> &str {
        self.name.strip_prefix("KIND_").unwrap_or(self.name)
    }

    fn digits(&self) -> String {
        if self.is_byte {
            format!("{:#04x}", self.value)
        } else {
            self.value.to_string()
        }
    }
}

/// `native_numbers.h` of the extension.
pub fn c_header() -> String {
    let mut text = String::from(
        "/* Made by crates/wire from native/numbers.rs; a test compares. docs/reference/native-codec.md says\n \
         * what the numbers mean. */\n",
    );
    for (group, numbers) in GROUPS {
        _ = writeln!(text, "\n/* ---- {group} ---- */\n"); // a string takes everything
        for number in *numbers {
            let (name, comment, digits) = (number.name(), number.comment, number.digits());
            _ = writeln!(text, "/*{comment} */\n#define NATIVE_{name} {digits}u");
        }
    }
    text
}

/// `Native.php` of the package.
pub fn php_class() -> String {
    let mut text = String::from(
        r"<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * The numbers of the native codec. Made by crates/wire from native/numbers.rs; a test compares.
 * docs/reference/native-codec.md says what they mean.
 */
final class Native
{
",
    );
    for (group, numbers) in GROUPS {
        _ = writeln!(text, "    // {group}.\n"); // a string takes everything
        for number in *numbers {
            let (name, comment, digits) = (number.name(), number.comment, number.digits());
            _ = writeln!(
                text,
                "    /**{comment} */\n    public const {name} = {digits};"
            );
        }
        text.push('\n');
    }
    text.pop();
    text.push_str("}\n");
    text
}
