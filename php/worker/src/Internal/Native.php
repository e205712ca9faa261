<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * The numbers of the native codec. Made by crates/wire from native/numbers.rs; a test compares.
 * docs/reference/native-codec.md says what they mean.
 */
final class Native
{
    // Versions and sizes.

    /** The version of this codec; named in both control frames of the handshake. */
    public const VERSION = 1;
    /** Bytes of a frame from which its length follows. */
    public const FRAME_START = 12;
    /** A frame's header with its one option, the length of the context. */
    public const FRAME = 16;
    /** Bytes that every context starts with: kind, flags, a small number, the call's number. */
    public const ENVELOPE = 8;
    /** A call's context before what depends on its kind: envelope, when accepted, time left. */
    public const CALL_HEAD = 20;
    /** A request's context before its table. */
    public const REQUEST_HEAD = 28;
    /** Strings of a request's text before its headers. */
    public const LINE = 6;
    /** A job's context before its table. */
    public const JOB_HEAD = 40;
    /** A gRPC call's context before its table. */
    public const GRPC_HEAD = 28;
    /** A TCP call's context before its strings. */
    public const TCP_HEAD = 40;
    /** The longest payload that a worker takes: longer bodies come as files. */
    public const MAX_PAYLOAD = 67108864;
    /** The longest context that the server takes: no client would take a head so large. */
    public const MAX_CONTEXT = 1048576;
    /** The longest state that the server keeps for a connection. */
    public const MAX_STATE = 65536;
    /** The longest argument of a method that a worker calls: longer ones go by RPC. */
    public const MAX_ARGUMENT = 1048576;
    /** No limit, where a time is expected. */
    public const NO_LIMIT = 4294967295;
    /** In how many microseconds a worker counts how long it was at work after its reply. */
    public const REST_UNIT_US = 10;

    // Kinds of messages to a worker.

    /** A call of kind `http`. */
    public const REQUEST = 0x01;
    /** A call of kind `script`. */
    public const SCRIPT = 0x02;
    /** A call of kind `raw`. */
    public const RAW = 0x03;
    /** A call of kind `job`. */
    public const JOB = 0x04;
    /** A call of kind `grpc`. */
    public const GRPC = 0x05;
    /** A call of kind `tcp`. */
    public const TCP = 0x08;
    /** The client of this call has left. */
    public const CANCEL = 0x10;
    /** Asks whether the worker lives. */
    public const PING = 0x11;
    /** A piece of a streamed request. */
    public const BODY = 0x12;
    /** What a method of the server returned. */
    public const ANSWER = 0x13;

    // Kinds of messages to the server.

    /** The reply to a call, or the beginning of it. */
    public const REPLY = 0x81;
    /** A further piece of a reply. */
    public const CHUNK = 0x82;
    /** A 1xx reply before the real one. */
    public const INFORMATIONAL = 0x83;
    /** The handler threw. */
    public const ERROR = 0x84;
    /** Asks for more time. */
    public const EXTEND = 0x85;
    /** A worker that was busy after its reply takes calls again. */
    public const FREE = 0x86;
    /** Asks for the next piece of a streamed request. */
    public const WANT = 0x87;
    /** Asks for new workers. */
    public const RENEW = 0x88;
    /** A mistake in the application that ended no call. */
    public const REMARK = 0x89;
    /** What the time of a call was spent on. */
    public const SPENT = 0x8a;
    /** What the application calls the call's route. */
    public const ROUTE = 0x8b;
    /** A record for the log. */
    public const LOG = 0x8c;
    /** Calls a method of the server. */
    public const ASK = 0x8d;
    /** What the application has counted. */
    public const COUNTS = 0x8e;
    /** What PHP writes to its log. */
    public const MESSAGE = 0x8f;
    /** The answer to a ping. */
    public const PONG = 0x91;

    // Small numbers of answers.

    /** The body is the result, as JSON. */
    public const ANSWER_RESULT = 0;
    /** The body is a text: why there is none. */
    public const ANSWER_FAILURE = 1;

    // Small numbers of replies to jobs.

    /** It is done. */
    public const JOB_DONE = 0;
    /** It has failed, and no other attempt would help. */
    public const JOB_FAILED = 1;
    /** It is to run again, at the time that follows the envelope. */
    public const JOB_RETRY = 2;
    /** It is done, and the body says why it has no result. */
    public const JOB_DONE_WITHOUT = 3;

    // Small numbers of TCP calls.

    /** A client has connected. */
    public const TCP_CONNECTED = 0;
    /** The body is a message of the client. */
    public const TCP_DATA = 1;
    /** The connection has ended. */
    public const TCP_CLOSED = 2;

    // Small numbers of replies to TCP calls, which are added.

    /** The connection ends once the body is sent. */
    public const TCP_CLOSE = 1;
    /** A new state of the connection follows the envelope. */
    public const TCP_STATE = 2;

    // Flags.

    /** Of requests and replies: the body is the path of a file. */
    public const BODY_FILE = 0x01;
    /** Of requests: the body is a form. */
    public const FORM = 0x02;
    /** In requests and TCP calls: the client's connection was encrypted. */
    public const TLS = 0x04;
    /** Of requests: details of errors may be shown to the client. */
    public const DEVELOPMENT = 0x08;
    /** Of requests: the body is asked for piece by piece. */
    public const BODY_STREAM = 0x10;
    /** Of calls: before the end of its reply the worker tells what the time was spent on. */
    public const TIMED = 0x20;
    /** Of jobs: the reply's body is to be what the handler returns, for somebody waits for it. */
    public const WANTS_RESULT = 0x40;
    /** In gRPC calls: the reply may have any number of messages. */
    public const STREAMS = 0x04;
    /** Of the end of a reply: the worker is not free yet, and will say when it is. */
    public const BUSY = 0x02;
    /** Of the end of a reply: the worker takes no further call. */
    public const LEAVING = 0x04;
    /** Of messages for the log: PHP itself has put it into words, and no `error_log()`. */
    public const BY_PHP = 0x01;
    /** Of any message: a receiver that does not know its kind ignores it. */
    public const IGNORABLE = 0x80;
}
