/* Made by crates/wire from native/numbers.rs; a test compares. docs/reference/native-codec.md says
 * what the numbers mean. */

/* ---- Versions and sizes ---- */

/* The version of this codec; named in both control frames of the handshake. */
#define NATIVE_VERSION 1u
/* Bytes of a frame from which its length follows. */
#define NATIVE_FRAME_START 12u
/* A frame's header with its one option, the length of the context. */
#define NATIVE_FRAME 16u
/* Bytes that every context starts with: kind, flags, a small number, the call's number. */
#define NATIVE_ENVELOPE 8u
/* A call's context before what depends on its kind: envelope, when accepted, time left. */
#define NATIVE_CALL_HEAD 20u
/* A request's context before its table. */
#define NATIVE_REQUEST_HEAD 28u
/* Strings of a request's text before its headers. */
#define NATIVE_LINE 6u
/* A job's context before its table. */
#define NATIVE_JOB_HEAD 40u
/* A gRPC call's context before its table. */
#define NATIVE_GRPC_HEAD 28u
/* A TCP call's context before its strings. */
#define NATIVE_TCP_HEAD 40u
/* The longest payload that a worker takes: longer bodies come as files. */
#define NATIVE_MAX_PAYLOAD 67108864u
/* The longest context that the server takes: no client would take a head so large. */
#define NATIVE_MAX_CONTEXT 1048576u
/* The longest state that the server keeps for a connection. */
#define NATIVE_MAX_STATE 65536u
/* The longest argument of a method that a worker calls: longer ones go by RPC. */
#define NATIVE_MAX_ARGUMENT 1048576u
/* No limit, where a time is expected. */
#define NATIVE_NO_LIMIT 4294967295u
/* In how many microseconds a worker counts how long it was at work after its reply. */
#define NATIVE_REST_UNIT_US 10u

/* ---- Kinds of messages to a worker ---- */

/* A call of kind `http`. */
#define NATIVE_REQUEST 0x01u
/* A call of kind `script`. */
#define NATIVE_SCRIPT 0x02u
/* A call of kind `raw`. */
#define NATIVE_RAW 0x03u
/* A call of kind `job`. */
#define NATIVE_JOB 0x04u
/* A call of kind `grpc`. */
#define NATIVE_GRPC 0x05u
/* A call of kind `tcp`. */
#define NATIVE_TCP 0x08u
/* The client of this call has left. */
#define NATIVE_CANCEL 0x10u
/* Asks whether the worker lives. */
#define NATIVE_PING 0x11u
/* A piece of a streamed request. */
#define NATIVE_BODY 0x12u
/* What a method of the server returned. */
#define NATIVE_ANSWER 0x13u

/* ---- Kinds of messages to the server ---- */

/* The reply to a call, or the beginning of it. */
#define NATIVE_REPLY 0x81u
/* A further piece of a reply. */
#define NATIVE_CHUNK 0x82u
/* A 1xx reply before the real one. */
#define NATIVE_INFORMATIONAL 0x83u
/* The handler threw. */
#define NATIVE_ERROR 0x84u
/* Asks for more time. */
#define NATIVE_EXTEND 0x85u
/* A worker that was busy after its reply takes calls again. */
#define NATIVE_FREE 0x86u
/* Asks for the next piece of a streamed request. */
#define NATIVE_WANT 0x87u
/* Asks for new workers. */
#define NATIVE_RENEW 0x88u
/* A mistake in the application that ended no call. */
#define NATIVE_REMARK 0x89u
/* What the time of a call was spent on. */
#define NATIVE_SPENT 0x8au
/* What the application calls the call's route. */
#define NATIVE_ROUTE 0x8bu
/* A record for the log. */
#define NATIVE_LOG 0x8cu
/* Calls a method of the server. */
#define NATIVE_ASK 0x8du
/* What the application has counted. */
#define NATIVE_COUNTS 0x8eu
/* What PHP writes to its log. */
#define NATIVE_MESSAGE 0x8fu
/* The answer to a ping. */
#define NATIVE_PONG 0x91u

/* ---- Small numbers of answers ---- */

/* The body is the result, as JSON. */
#define NATIVE_ANSWER_RESULT 0u
/* The body is a text: why there is none. */
#define NATIVE_ANSWER_FAILURE 1u

/* ---- Small numbers of replies to jobs ---- */

/* It is done. */
#define NATIVE_JOB_DONE 0u
/* It has failed, and no other attempt would help. */
#define NATIVE_JOB_FAILED 1u
/* It is to run again, at the time that follows the envelope. */
#define NATIVE_JOB_RETRY 2u
/* It is done, and the body says why it has no result. */
#define NATIVE_JOB_DONE_WITHOUT 3u

/* ---- Small numbers of TCP calls ---- */

/* A client has connected. */
#define NATIVE_TCP_CONNECTED 0u
/* The body is a message of the client. */
#define NATIVE_TCP_DATA 1u
/* The connection has ended. */
#define NATIVE_TCP_CLOSED 2u

/* ---- Small numbers of replies to TCP calls, which are added ---- */

/* The connection ends once the body is sent. */
#define NATIVE_TCP_CLOSE 1u
/* A new state of the connection follows the envelope. */
#define NATIVE_TCP_STATE 2u

/* ---- Flags ---- */

/* Of requests and replies: the body is the path of a file. */
#define NATIVE_BODY_FILE 0x01u
/* Of requests: the body is a form. */
#define NATIVE_FORM 0x02u
/* In requests and TCP calls: the client's connection was encrypted. */
#define NATIVE_TLS 0x04u
/* Of requests: details of errors may be shown to the client. */
#define NATIVE_DEVELOPMENT 0x08u
/* Of requests: the body is asked for piece by piece. */
#define NATIVE_BODY_STREAM 0x10u
/* Of calls: before the end of its reply the worker tells what the time was spent on. */
#define NATIVE_TIMED 0x20u
/* Of jobs: the reply's body is to be what the handler returns, for somebody waits for it. */
#define NATIVE_WANTS_RESULT 0x40u
/* In gRPC calls: the reply may have any number of messages. */
#define NATIVE_STREAMS 0x04u
/* Of the end of a reply: the worker is not free yet, and will say when it is. */
#define NATIVE_BUSY 0x02u
/* Of the end of a reply: the worker takes no further call. */
#define NATIVE_LEAVING 0x04u
/* Of messages for the log: PHP itself has put it into words, and no `error_log()`. */
#define NATIVE_BY_PHP 0x01u
/* Of any message: a receiver that does not know its kind ignores it. */
#define NATIVE_IGNORABLE 0x80u
