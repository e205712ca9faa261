/* The extension's surface: what the package pronghorn/worker calls. Without a server of ours around
 * it it does nothing. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <pthread.h>

#include "php.h"
#include "php_ini.h"
#include "php_output.h"
#include "ext/standard/head.h"
#include "ext/standard/info.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"

#include "booted.h"
#include "cache.h"
#include "channel.h"
#include "chunks.h"
#include "classic.h"
#include "deadline.h"
#include "exit.h"
#include "held.h"
#include "leaks.h"
#include "leftovers.h"
#include "messages.h"
#include "opcache.h"
#include "pending.h"
#include "printed.h"
#include "properties.h"
#include "statics.h"
#include "release.h"
#include "reply.h"
#include "requests.h"
#include "reset.h"
#include "session_close.h"
#include "sessions.h"
#include "spent.h"

/* Changes whenever a function of ours does. */
#define PRONGHORN_API 18

#include "pronghorn_arginfo.h"

/* The thread that attached the channel: with threads in PHP, another one must not read its
 * calls. */
static pthread_t owner;
/* Where everything is in an exchange. */
static native_slots slots;
/* What is looked at of a call when its handler has returned, in objects of the package's
 * classes. */
static struct {
	uint32_t state, deferred, body, face, counts;
	uint32_t open, spilled, level;
	uint32_t text, status, headers;
	const zend_class_entry *response;
	/* The static property that holds the call under way. */
	zval *current;
} property_offsets;
/* Of an exchange: no byte of its reply was sent, its head, or all. */
#define FRESH 0
#define STREAMING 1
#define DONE 2
/* Where the output of calls is kept; NULL: no loop has said so. */
static zend_object *kept_output;

/* Sends what a handler returned, where that takes no more than sending. */
typedef bool answer_function(zend_object *exchange, const zval *result);
static answer_function answers_request, answers_raw, answers_grpc;

/* The kinds of calls that are served here without a line of PHP: the message that begins one, what
 * makes an exchange of it, and where its handler's parameter is. */
enum { HTTP, RAW, GRPC, KINDS };
static const struct {
	uint8_t message;
	native_reader *read;
	const uint32_t *parameter;
	answer_function *answers;
} kinds[KINDS] = {
	[HTTP] = {NATIVE_REQUEST, native_read_request, &slots.request, answers_request},
	[RAW] = {NATIVE_RAW, native_read_raw, &slots.raw_payload, answers_raw},
	[GRPC] = {NATIVE_GRPC, native_read_grpc, &slots.grpc_call, answers_grpc},
};
/* What their exchanges are clones of; NULL: nothing is attached. */
static zend_object *exchange_templates[KINDS];

/* KINDS: it is no call. */
static unsigned kind_of_message(uint8_t message)
{
	unsigned kind = 0;
	while (kind < KINDS && kinds[kind].message != message) {
		kind++;
	}
	return kind;
}

static unsigned kind_of_exchange(const zend_object *exchange)
{
	unsigned kind = 0;
	while (kind < KINDS - 1 && exchange_templates[kind]->ce != exchange->ce) {
		kind++;
	}
	return kind;
}

/* Not in a forked child, nor where the channel is that of scripts. */
static bool has_channel(void)
{
	return channel.map != NULL && exchange_templates[HTTP] != NULL;
}

/* Of whatever kind; 0: there is none, or another thread asks. */
static uint32_t call_under_way(void)
{
	return has_channel() && pthread_equal(owner, pthread_self()) ? channel_call() : 0;
}

static bool is_attached(void)
{
	if (!has_channel() || !pthread_equal(owner, pthread_self())) {
		zend_throw_error(NULL, "This process is no worker of Pronghorn with shared memory, or was forked from one");
		return false;
	}
	return true;
}

bool run_pending(void)
{
#if PHP_VERSION_ID >= 80200
	bool pending = zend_atomic_bool_exchange_ex(&EG(vm_interrupt), false);
	bool timed_out = zend_atomic_bool_load_ex(&EG(timed_out));
#else
	bool pending = EG(vm_interrupt);
	bool timed_out = EG(timed_out);
	EG(vm_interrupt) = false;
#endif
	if (pending && timed_out) {
		zend_timeout();
	} else if (pending && zend_interrupt_function) {
		zend_interrupt_function(EG(current_execute_data));
	}
	return EG(exception) == NULL;
}

/* What a signal's handler throws while a message is written waits until the message is out. */
static bool handle_interruption(bool is_writing)
{
	if (is_writing) {
		if (EG(exception) == NULL) {
			run_pending();
		}
		return true;
	}
	chunks_look();
	return run_pending();
}

static bool wait_for(size_t bytes)
{
	chunks_look();
	return channel_wait(bytes);
}

/* A whole message: envelope, fields or context, body. */
static bool send_message(const native_envelope *envelope, const native_fields *fields, zend_string *context, zend_string *body, bool more)
{
	size_t rest = fields != NULL ? native_fields_length(fields) : context != NULL ? ZSTR_LEN(context) : 0;
	size_t length = ZSTR_LEN(body);
	if (rest > NATIVE_MAX_CONTEXT - NATIVE_ENVELOPE || length > UINT32_MAX - NATIVE_ENVELOPE - rest) {
		zend_value_error("A message to the server is too long");
		return false;
	}
	unsigned char *at = channel_begin(envelope, rest, length, more);
	if (at == NULL) {
		return false;
	}
	if (fields != NULL) {
		at = native_write_fields(at, fields);
	} else if (context != NULL) {
		memcpy(at, ZSTR_VAL(context), rest);
		at += rest;
	}
	return channel_end(envelope, at, ZSTR_VAL(body), length, more);
}

/* A frame that the box can't hold at once. NULL: the server is gone, or an exception was thrown. */
static zend_string *read_long_frame(size_t length)
{
	zend_string *frame = zend_string_alloc(length, false);
	if (!channel_pull(ZSTR_VAL(frame), length)) {
		zend_string_efree(frame);
		return NULL;
	}
	ZSTR_VAL(frame)[length] = '\0';
	return frame;
}

/* Makes an exchange of a call, whose envelope it gives, else a string. False: it was answered
 * here. */
static bool read_frame(zval *into, const unsigned char *frame, size_t length, native_envelope *call)
{
	native_envelope envelope;
	if (native_read_envelope(frame, length, &envelope)) {
		zend_object *exchange = NULL;
		unsigned kind = kind_of_message(envelope.kind);
		if (kind < KINDS) {
			*call = envelope;
			exchange = kinds[kind].read(&slots, exchange_templates[kind], frame, length, &envelope);
		} else if (envelope.kind == NATIVE_JOB || envelope.kind == NATIVE_TCP) {
			/* Begun like the others, but PHP reads it. */
			*call = envelope;
		}
		if (exchange != NULL) {
			ZVAL_OBJ(into, exchange);
			return true;
		}
		if (envelope.kind == NATIVE_PING) {
			channel_send((native_envelope) {.kind = NATIVE_PONG, .call = envelope.call});
			return false;
		}
	}
	/* Rare, or nonsense: PHP has the words for it. */
	ZVAL_STRINGL(into, (const char *) frame, length);
	return true;
}

/* A call is begun when its bytes are taken: nothing is left to do that could be seen of it if this
 * process ended. */
static bool begin(zval *into, const native_envelope *envelope)
{
	const uint32_t call = envelope->call;
	if (call == 0) {
		return true;
	}
	if (ring_claim(&channel, call)) {
		channel_begun(call);
		/* The client of the call before may have left. */
		PG(connection_status) = PHP_CONNECTION_NORMAL;
		printed_begins();
		deadline_begins(call);
		spent_begins(call, (envelope->flags & NATIVE_TIMED) != 0);
		return true;
	}
	zval_ptr_dtor(into);
	ZVAL_NULL(into);
	return false;
}

/* Waits for the frame after this one. False: that one needs nobody. */
static bool next(zval *into)
{
	if (!run_pending() || !wait_for(NATIVE_FRAME_START)) {
		return true;
	}
	native_envelope call = {0};
	size_t length = native_frame_length(ring_peek(&channel));
	if (length == 0) {
		/* No frame; enough of it to show. */
		ZVAL_STRINGL(into, (const char *) ring_peek(&channel), MIN(ring_there(&channel), 80));
		return true;
	}
	if (length > RING_DOWN) {
		zend_string *frame = read_long_frame(length);
		bool done = frame == NULL || read_frame(into, (const unsigned char *) ZSTR_VAL(frame), length, &call);
		if (frame != NULL) {
			zend_string_release(frame);
		}
		return done && begin(into, &call);
	}
	if (!wait_for(length)) {
		return true;
	}
	bool done = read_frame(into, ring_peek(&channel), length, &call);
	ring_take(&channel, length);
	return done && begin(into, &call);
}

/* NULL, or the name of the property that is missing. */
static const char *find_properties(zend_class_entry *exchange, const zend_class_entry *output, const zend_class_entry *response)
{
	const native_wanted wanted[] = {
		{&property_offsets.state, exchange, "state"}, {&property_offsets.deferred, exchange, "deferred"}, {&property_offsets.body, exchange, "body"},
		{&property_offsets.face, exchange, "call"}, {&property_offsets.counts, exchange, "counts"}, {&property_offsets.open, output, "open"}, {&property_offsets.spilled, output, "spilled"},
		{&property_offsets.level, output, "level"}, {&property_offsets.text, response, "body"}, {&property_offsets.status, response, "status"},
		{&property_offsets.headers, response, "headers"},
	};
	if (property_offsets.response == response) {
		return NULL;
	}
	const char *missing = native_find(wanted, sizeof wanted / sizeof *wanted);
	if (missing != NULL) {
		return missing;
	}
	zend_string *name = zend_string_init(ZEND_STRL("current"), false);
	property_offsets.current = zend_std_get_static_property(exchange, name, BP_VAR_IS);
	zend_string_release(name);
	if (property_offsets.current == NULL) {
		return "current";
	}
	property_offsets.response = response;
	return NULL;
}

/* Whether these are of the classes that this file knows. False: an exception was thrown. */
static bool fits(const zval *output, const zval *response)
{
	const char *missing = find_properties(exchange_templates[HTTP]->ce, Z_OBJCE_P(output), Z_OBJCE_P(response));
	if (missing != NULL) {
		zend_value_error("The classes of the package have no property $%s", missing);
		return false;
	}
	if (kept_output != Z_OBJ_P(output)) {
		zend_object *before = kept_output;
		kept_output = Z_OBJ_P(output);
		GC_ADDREF(kept_output);
		if (before != NULL) {
			OBJ_RELEASE(before);
		}
	}
	return true;
}

ZEND_FUNCTION(Pronghorn_Internal_ring_attach)
{
	zend_long memory, page, bell, server, output, look_after;
	zval *http, *raw, *grpc;

	ZEND_PARSE_PARAMETERS_START(9, 9)
		Z_PARAM_LONG(memory)
		Z_PARAM_LONG(page)
		Z_PARAM_LONG(bell)
		Z_PARAM_LONG(server)
		Z_PARAM_LONG(output)
		Z_PARAM_LONG(look_after)
		Z_PARAM_OBJECT(http)
		Z_PARAM_OBJECT(raw)
		Z_PARAM_OBJECT(grpc)
	ZEND_PARSE_PARAMETERS_END();

	if (look_after < 0 || look_after > 60000) {
		zend_argument_value_error(6, "must be between 0 and 60000");
		RETURN_THROWS();
	}
	if (channel.map != NULL) {
		RETURN_STRING("it is in use already");
	}
	const zval *request = zend_read_property(Z_OBJCE_P(http), Z_OBJ_P(http), ZEND_STRL("request"), true, &EG(uninitialized_zval));
	if (Z_TYPE_P(request) != IS_OBJECT) {
		zend_argument_value_error(7, "must have a request");
		RETURN_THROWS();
	}
	const zval *call = zend_read_property(Z_OBJCE_P(grpc), Z_OBJ_P(grpc), ZEND_STRL("grpcCall"), true, &EG(uninitialized_zval));
	if (Z_TYPE_P(call) != IS_OBJECT) {
		zend_argument_value_error(9, "must have a call");
		RETURN_THROWS();
	}
	const native_classes classes = {
		.http = Z_OBJCE_P(http), .request = Z_OBJCE_P(request), .raw = Z_OBJCE_P(raw), .grpc = Z_OBJCE_P(grpc),
		.grpc_call = Z_OBJCE_P(call),
	};
	const char *missing = native_find_slots(&slots, &classes);
	if (missing != NULL) {
		zend_argument_value_error(7, "must have a property $%s, or its request, the raw or the gRPC one, or its call", missing);
		RETURN_THROWS();
	}
	const channel_descriptors descriptors = {
		.memory = (int) memory, .page = (int) page, .bell = (int) bell, .input = (int) server, .output = (int) output,
	};
	const char *wrong = channel_attach(&descriptors, (unsigned) look_after, handle_interruption);
	if (wrong != NULL) {
		RETURN_STRING(wrong);
	}
	opcache_watch();
	leftovers_watch();
	chunks_keep((unsigned) look_after);
	owner = pthread_self();
	messages_take_over(call_under_way);
	exchange_templates[HTTP] = Z_OBJ_P(http);
	exchange_templates[RAW] = Z_OBJ_P(raw);
	exchange_templates[GRPC] = Z_OBJ_P(grpc);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		GC_ADDREF(exchange_templates[kind]);
	}
	RETURN_NULL();
}

ZEND_FUNCTION(Pronghorn_Internal_zygote_serve)
{
	zend_long control;
	bool is_warm;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_LONG(control)
		Z_PARAM_BOOL(is_warm)
	ZEND_PARSE_PARAMETERS_END();

	if (!booted_serve((int) control, is_warm)) {
		zend_throw_error(NULL, "This process was not started as a zygote of Pronghorn, or has been one");
		RETURN_THROWS();
	}
}

/* Waits for a call, or another frame. NULL: the server is gone, an exception was thrown, or this
 * process should leave. */
static void wait_for_next(zval *into)
{
	ZVAL_NULL(into);
	if (!requests_settle()) {
		return;
	}
	enum opcache_wish wish = opcache_wish();
	if (wish != OPCACHE_NOTHING) {
		channel_send((native_envelope) {.kind = NATIVE_RENEW, .flags = NATIVE_IGNORABLE, .small = (uint16_t) wish, .call = 1});
	}
	while (!next(into)) {
	}
}

ZEND_FUNCTION(Pronghorn_Internal_ring_next)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	wait_for_next(return_value);
}

ZEND_FUNCTION(Pronghorn_Internal_ring_peek)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	native_envelope envelope;
	size_t length = channel_look(&envelope);
	/* A call waits for its turn, and what is no frame for its message. */
	if (length == 0 || native_is_call(envelope.kind)) {
		RETURN_NULL();
	}
	RETVAL_STRINGL((const char *) ring_peek(&channel), length);
	ring_take(&channel, length);
}

/* Nothing interrupts what follows a reply, but for what it has deferred, in until_exit: nobody else
 * would catch it. */
static void end_deadline(const native_envelope *reply)
{
	deadline_ends(reply->flags & NATIVE_BUSY ? reply->call : 0);
}

/* What the end of a call has printed goes behind the body. NULL: nothing does. */
static zend_string *with_end(const native_envelope *envelope, const zend_string *body)
{
	if (EXPECTED(!printed_any())) {
		return NULL;
	}
	zend_string *end = printed_take_all();
	if (end != NULL && envelope->flags & NATIVE_BODY_FILE) {
		/* The body is a path, and the server sends the file. */
		printed_drop(ZSTR_LEN(end));
		zend_string_release(end);
		return NULL;
	}
	if (end == NULL) {
		return NULL;
	}
	zend_string *whole = zend_string_concat2(ZSTR_VAL(body), ZSTR_LEN(body), ZSTR_VAL(end), ZSTR_LEN(end));
	zend_string_release(end);
	return whole;
}

/* What a handler has returned, while functions for the end of its call run. */
static struct {
	native_envelope envelope;
	zend_array *headers;
	zend_string *body;
	bool is_sent;
} returned;

/* Those functions print more than waits, or want it out: head and body go before it. */
static bool send_returned(void)
{
	static bool is_sending;
	if (is_sending) {
		return false; /* the callback for the head prints */
	}
	if (returned.envelope.flags & NATIVE_BODY_FILE) {
		size_t length;
		reply_take(&length);
		printed_drop(length);
		return false;
	}
	is_sending = true;
	requests_call_back_for_head(true);
	zend_array *headers = requests_head(&returned.envelope.small, returned.headers, false, true);
	native_envelope envelope = returned.envelope;
	envelope.flags = 0;
	native_fields fields;
	returned.is_sent = native_collect_fields(&fields, headers) && send_message(&envelope, &fields, NULL, returned.body, true);
	native_release_fields(&fields);
	zend_array_release(headers);
	is_sending = false;
	return returned.is_sent;
}

/* Runs the functions for the end of a call. True: the reply is sent. */
static bool finish_returned(const native_envelope *envelope, zend_array *headers, zend_string *body)
{
	returned.envelope = *envelope;
	returned.headers = headers;
	returned.body = body;
	returned.is_sent = false;
	reply_begin_once(envelope->call, false);
	reply_send_first(send_returned);
	requests_finish();
	if (returned.is_sent || printed_any()) {
		/* PHP's buffers may hold more than fits. */
		php_output_end_all();
	}
	reply_send_first(NULL);
	return returned.is_sent && reply_end(envelope->flags);
}

static bool send_reply(native_envelope envelope, zend_array *headers, zend_string *body, bool more)
{
	envelope.kind = NATIVE_REPLY;
	const bool is_request = requests_under_way();
	zend_string *whole = NULL;
	if (is_request) {
		if (!more && EXPECTED(!requests_have_end())) {
			requests_finish();
		} else if (!more && finish_returned(&envelope, headers, body)) {
			return true;
		}
		/* The server names the type of a file. */
		const bool is_file = (envelope.flags & NATIVE_BODY_FILE) != 0;
		requests_call_back_for_head(!is_file);
		if (!more) {
			whole = with_end(&envelope, body);
		}
		const bool has_body = more || whole != NULL || ZSTR_LEN(body) > 0;
		headers = requests_head(&envelope.small, headers, whole == NULL, has_body && !is_file);
	}
	if (!more) {
		end_deadline(&envelope);
	}
	native_fields fields;
	bool sent = native_collect_fields(&fields, headers) && send_message(&envelope, &fields, NULL, whole == NULL ? body : whole, more);
	native_release_fields(&fields);
	if (is_request) {
		zend_array_release(headers);
	}
	if (whole != NULL) {
		zend_string_release(whole);
	}
	return sent;
}

ZEND_FUNCTION(Pronghorn_Internal_ring_reply)
{
	zend_long call, status, flags;
	zend_array *headers;
	zend_string *body;
	bool more;

	ZEND_PARSE_PARAMETERS_START(6, 6)
		Z_PARAM_LONG(call)
		Z_PARAM_LONG(status)
		Z_PARAM_ARRAY_HT(headers)
		Z_PARAM_STR(body)
		Z_PARAM_LONG(flags)
		Z_PARAM_BOOL(more)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	const native_envelope envelope = {.flags = (uint8_t) flags, .small = (uint16_t) status, .call = (uint32_t) call};
	RETURN_BOOL(send_reply(envelope, headers, body, more));
}

/* How a call ended, as far as the handler is concerned: Pronghorn\Internal\Ring has the same
 * numbers. */
enum call_outcome { ANSWERED, RETURNED, THREW, EXITED };

static bool is_text(const zval *value)
{
	return Z_TYPE_P(value) == IS_STRING || Z_TYPE_P(value) == IS_LONG;
}

/* Whether writing them runs nobody's code. */
static bool are_plain(zend_array *headers)
{
	zval *value, *one;
	ZEND_HASH_FOREACH_VAL(headers, value) {
		if (Z_TYPE_P(value) == IS_ARRAY) {
			ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), one) {
				if (!is_text(one)) {
					return false;
				}
			} ZEND_HASH_FOREACH_END();
		} else if (!is_text(value)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

static uint32_t number_of(zend_object *exchange)
{
	return (uint32_t) Z_LVAL_P(OBJ_PROP(exchange, slots.id));
}

/* Whether nothing was printed, and the buffers are as they were. */
static bool is_silent(void)
{
	return Z_TYPE_P(OBJ_PROP(kept_output, property_offsets.open)) == IS_TRUE && Z_TYPE_P(OBJ_PROP(kept_output, property_offsets.spilled)) == IS_FALSE
		&& zend_stack_count(&OG(handlers)) == Z_LVAL_P(OBJ_PROP(kept_output, property_offsets.level))
		&& OG(active) != NULL && OG(active)->buffer.used == 0;
}

/* The exchange of the request under way; NULL: there is none. */
static zend_object *current_request(void)
{
	const zval *current = property_offsets.current;
	if (current == NULL) {
		return NULL;
	}
	ZVAL_DEREF(current);
	return Z_TYPE_P(current) == IS_OBJECT && Z_OBJCE_P(current) == exchange_templates[HTTP]->ce ? Z_OBJ_P(current) : NULL;
}

/* Between two calls, and in a forked child, nobody waits for output, which may be a visitor's. */
static enum printed_place place_of_output(uint32_t *call)
{
	if (!has_channel()) {
		return PRINTED_LATE;
	}
	zend_object *exchange = current_request();
	if (exchange == NULL) {
		return property_offsets.current != NULL && Z_TYPE_P(property_offsets.current) == IS_OBJECT ? PRINTED_LOG : PRINTED_LATE;
	}
	*call = number_of(exchange);
	switch (Z_LVAL_P(OBJ_PROP(exchange, property_offsets.state))) {
		case FRESH:
			return PRINTED_REPLY;
		case STREAMING:
			return PRINTED_STREAM;
		default:
			return PRINTED_LATE;
	}
}

static void note_begun(void)
{
	zend_object *exchange = current_request();
	if (exchange != NULL && Z_LVAL_P(OBJ_PROP(exchange, property_offsets.state)) == FRESH) {
		ZVAL_LONG(OBJ_PROP(exchange, property_offsets.state), STREAMING);
	}
}

static bool has_deferred(zend_object *exchange)
{
	const zval *deferred = OBJ_PROP(exchange, property_offsets.deferred);
	return Z_TYPE_P(deferred) == IS_ARRAY && zend_hash_num_elements(Z_ARRVAL_P(deferred)) > 0;
}

static bool is_fresh(zend_object *exchange)
{
	/* A reference to what was deferred is followed by PHP. */
	return Z_TYPE_P(OBJ_PROP(exchange, property_offsets.deferred)) == IS_ARRAY
		&& Z_LVAL_P(OBJ_PROP(exchange, property_offsets.state)) == FRESH;
}

/* Notes that the reply was sent. Where it was not, PHP comes to the same end, and has the words for
 * it. */
static bool is_answered(zend_object *exchange, bool sent)
{
	if (sent) {
		ZVAL_LONG(OBJ_PROP(exchange, property_offsets.state), DONE);
	} else {
		zend_clear_exception();
	}
	return sent;
}

static bool answers_raw(zend_object *exchange, const zval *result)
{
	if (!is_fresh(exchange) || Z_TYPE_P(result) != IS_STRING) {
		return false;
	}
	const native_envelope envelope = {
		.kind = NATIVE_REPLY, .flags = has_deferred(exchange) ? NATIVE_BUSY : 0, .call = number_of(exchange),
	};
	end_deadline(&envelope);
	return is_answered(exchange, send_message(&envelope, NULL, NULL, Z_STR_P(result), false));
}

/* It has answered by what it was called with, which knows the words of gRPC. */
static bool answers_grpc(zend_object *exchange, const zval *result)
{
	return Z_TYPE_P(OBJ_PROP(exchange, property_offsets.deferred)) == IS_ARRAY
		&& Z_LVAL_P(OBJ_PROP(exchange, property_offsets.state)) == DONE;
}

static bool answers_request(zend_object *exchange, const zval *result)
{
	if (!is_fresh(exchange) || Z_TYPE_P(OBJ_PROP(exchange, property_offsets.body)) != IS_NULL || !is_silent()) {
		return false;
	}
	zend_long status = 200;
	zend_array *headers = (zend_array *) &zend_empty_array;
	const zval *text = result;
	if (Z_TYPE_P(result) == IS_OBJECT && Z_OBJCE_P(result) == property_offsets.response) {
		text = OBJ_PROP(Z_OBJ_P(result), property_offsets.text);
		status = Z_LVAL_P(OBJ_PROP(Z_OBJ_P(result), property_offsets.status));
		headers = Z_ARRVAL_P(OBJ_PROP(Z_OBJ_P(result), property_offsets.headers));
	}
	if (Z_TYPE_P(text) != IS_STRING || !are_plain(headers)) {
		return false;
	}
	const native_envelope envelope = {
		.flags = has_deferred(exchange) ? NATIVE_BUSY : 0, .small = (uint16_t) status, .call = number_of(exchange),
	};
	return is_answered(exchange, send_reply(envelope, headers, Z_STR_P(text), false));
}

/* An `exit` has ended what was called: where it was. A forked child that exits has to end, and not
 * to serve its parent's calls. */
static void survive_exit(zval *place)
{
	if ((has_channel() || booted_is_booting()) && exit_place(place)) {
		zend_clear_exception();
		EG(exit_status) = 0;
	}
}

/* The client has left, which has ended the call: what it has of the reply is all. False: something
 * else has ended it. */
static bool end_without_client(zend_object *exchange)
{
	zval *state = exchange == NULL ? NULL : OBJ_PROP(exchange, property_offsets.state);
	if (!has_channel() || state == NULL || Z_LVAL_P(state) == DONE || !printed_has_ended_call()) {
		return false;
	}
	zend_clear_exception();
	requests_finish();
	printed_close(0);
	/* Of an output callback: nobody gets what it was to change. */
	zend_clear_exception();
	reply_end(has_deferred(exchange) ? NATIVE_BUSY : 0);
	ZVAL_LONG(state, DONE);
	return true;
}

/* A function of PHP that was handed over to be called. */
typedef struct {
	zend_fcall_info call;
	zend_fcall_info_cache cache;
} callback;

/* Calls the handler, and answers if that is simple. `value` is what is left to do something
 * with. */
static enum call_outcome call_handler(callback *handler, zend_object *exchange, zval *value)
{
	const unsigned kind = kind_of_exchange(exchange);
	zval argument;
	ZVAL_COPY(&argument, OBJ_PROP(exchange, *kinds[kind].parameter));
	if (ARG_SHOULD_BE_SENT_BY_REF(handler->cache.function_handler, 1)) {
		ZVAL_MAKE_REF(&argument);
	}
	handler->call.retval = value;
	handler->call.params = &argument;
	handler->call.param_count = 1;
	exit_forget();
	zend_call_function(&handler->call, &handler->cache);
	zval_ptr_dtor(&argument);
	if (EG(exception) == NULL) {
		/* Not in a forked child, which has no server. */
		if (!has_channel() || !kinds[kind].answers(exchange, value)) {
			return RETURNED;
		}
		zval_ptr_dtor(value);
		ZVAL_NULL(value);
		if (EG(exception) == NULL) {
			return ANSWERED;
		}
	}
	zval_ptr_dtor(value);
	ZVAL_NULL(value);
	if (!zend_is_unwind_exit(EG(exception))) {
		ZVAL_OBJ_COPY(value, EG(exception));
		zend_clear_exception();
		return THREW;
	}
	if (end_without_client(current_request())) {
		return ANSWERED;
	}
	survive_exit(value);
	return EXITED;
}

/* An exception that nobody has caught goes to the handler that PHP would call, if there is one. */
static void handle_uncaught(void)
{
	if (Z_TYPE(EG(user_exception_handler)) == IS_UNDEF) {
		return;
	}
	zval thrown, result, handler;
	ZVAL_OBJ_COPY(&thrown, EG(exception));
	ZVAL_COPY(&handler, &EG(user_exception_handler));
	zend_clear_exception();
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, &handler, &result, 1, &thrown);
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&handler);
	zval_ptr_dtor(&thrown);
}

/* Whether an `exit` has ended what was called, or the client has left. */
static bool is_ended(void)
{
	zval place;
	ZVAL_UNDEF(&place);
	if (EG(exception) == NULL || !zend_is_unwind_exit(EG(exception)) || !has_channel()) {
		return false;
	}
	if (printed_has_ended_call()) {
		zend_clear_exception();
	}
	survive_exit(&place);
	zval_ptr_dtor(&place);
	return EG(exception) == NULL;
}

/* Calls a front controller, whose output is the reply. */
static enum call_outcome call_front(callback *handler, zend_object *exchange, zval *value)
{
	reply_begin(number_of(exchange));
	handler->call.retval = value;
	handler->call.params = NULL;
	handler->call.param_count = 0;
	exit_forget();
	zend_call_function(&handler->call, &handler->cache);
	zval_ptr_dtor(value);
	ZVAL_NULL(value);
	if (EG(exception) != NULL && !is_ended() && !zend_is_unwind_exit(EG(exception))) {
		handle_uncaught();
		is_ended();
	}
	if (!has_channel() || (EG(exception) != NULL && zend_is_unwind_exit(EG(exception)))) {
		return EXITED;
	}
	if (EG(exception) != NULL) {
		ZVAL_OBJ_COPY(value, EG(exception));
		zend_clear_exception();
	}
	requests_finish();
	if (Z_TYPE_P(value) != IS_OBJECT) {
		php_output_end_all();
		if (EG(exception) == NULL) {
			php_header();
		}
		/* Of an output callback, or that of the head. */
		if (EG(exception) != NULL && !is_ended()) {
			if (zend_is_unwind_exit(EG(exception))) {
				reply_empty(500); /* a fatal error, behind the head */
				return EXITED;
			}
			ZVAL_OBJ_COPY(value, EG(exception));
			zend_clear_exception();
		}
	}
	if (Z_TYPE_P(value) == IS_OBJECT) {
		if (!reply_has_begun()) {
			php_output_discard_all();
			/* Of an output callback: the page has failed before. */
			if (EG(exception) != NULL && !is_ended()) {
				zend_clear_exception();
			}
		}
		return THREW;
	}
	requests_reply(has_deferred(exchange) ? NATIVE_BUSY : 0);
	ZVAL_LONG(OBJ_PROP(exchange, property_offsets.state), DONE);
	return ANSWERED;
}

/* Calls one function that a call has deferred. What it throws is there afterwards, an `exit`
 * too. */
static void call_deferred(zval *work)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	char *wrong = NULL;
	zval result;

	if (zend_fcall_info_init(work, 0, &call, &cache, NULL, &wrong) != SUCCESS) {
		zend_throw_error(NULL, "What was deferred can't be called: %s", wrong == NULL ? "nothing says why" : wrong);
	} else {
		call.retval = &result;
		ZVAL_UNDEF(&result);
		zend_call_function(&call, &cache);
		zval_ptr_dtor(&result);
	}
	if (wrong != NULL) {
		efree(wrong);
	}
}

/* The package says that this process takes no other call. */
ZEND_TLS bool spoiled;

/* Hands over what was thrown, to be logged. */
static void tell_failed(const callback *failed, zend_object *exchange)
{
	zend_fcall_info call = failed->call;
	zend_fcall_info_cache cache = failed->cache;
	zval arguments[2], result;

	ZVAL_OBJ_COPY(&arguments[0], exchange);
	ZVAL_OBJ_COPY(&arguments[1], EG(exception));
	zend_clear_exception();
	call.retval = &result;
	call.params = arguments;
	call.param_count = 2;
	ZVAL_UNDEF(&result);
	zend_call_function(&call, &cache);
	spoiled = spoiled || Z_TYPE(result) == IS_TRUE;
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&arguments[1]);
	zval_ptr_dtor(&arguments[0]);
}

/* False: no more of it is done, because the call is over. An `exit` ends one function only: the next
 * ones may clean up. */
static bool handle_exception(const callback *failed, zend_object *exchange)
{
	if (EG(exception) == NULL) {
		return true;
	}
	if (zend_is_unwind_exit(EG(exception))) {
		zval place;
		ZVAL_UNDEF(&place);
		survive_exit(&place);
		zval_ptr_dtor(&place);
		exit_forget();
		return EG(exception) == NULL;
	}
	tell_failed(failed, exchange);
	if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception))) {
		/* The deadline, while that one was told. */
		tell_failed(failed, exchange);
		return false;
	}
	return EG(exception) == NULL;
}

/* Destructors of what it holds may throw as well. */
static void free_deferred(const callback *failed, zend_object *exchange, zval *deferred)
{
	const bool is_over = EG(exception) != NULL;
	zval before;
	ZVAL_COPY_VALUE(&before, deferred);
	ZVAL_EMPTY_ARRAY(deferred);
	zval_ptr_dtor(&before);
	if (!is_over) {
		handle_exception(failed, exchange);
	}
}

/* Does what a call has deferred, and what that defers, one after another; then says that this
 * worker is free, if it is. */
static void do_deferred(const callback *failed, zend_object *exchange)
{
	zval *place = OBJ_PROP(exchange, property_offsets.deferred);
	bool more = true;

	exit_forget();
	spoiled = false;
	bool has_deadline = deadline_begins_work_left();
	while (more && has_deferred(exchange)) {
		zval all, *work;
		ZVAL_COPY_VALUE(&all, place);
		ZVAL_EMPTY_ARRAY(place);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(all), work) {
			call_deferred(work);
			if (Z_REFCOUNT(all) == 1) {
				zval done;
				ZVAL_COPY_VALUE(&done, work);
				ZVAL_NULL(work);
				zval_ptr_dtor(&done);
			}
			more = handle_exception(failed, exchange);
			if (!more) {
				break;
			}
		} ZEND_HASH_FOREACH_END();
		free_deferred(failed, exchange, &all);
	}
	if (has_deadline) {
		deadline_ends(0);
	}
	free_deferred(failed, exchange, place);
	/* A forked child that comes to here has no server. */
	if (!spoiled && EG(exception) == NULL && is_attached()) {
		const uint32_t number = number_of(exchange);
		channel_send((native_envelope) {.kind = NATIVE_FREE, .small = deadline_rest(number), .call = number});
	}
}

static void assign_property(zval *place, zend_object *object)
{
	zval before;
	ZVAL_COPY_VALUE(&before, place);
	if (object == NULL) {
		ZVAL_NULL(place);
	} else {
		ZVAL_OBJ_COPY(place, object);
	}
	zval_ptr_dtor(&before);
}

static void begin_request(zend_object *exchange)
{
	const zval *body = OBJ_PROP(exchange, property_offsets.body);
	requests_begin(Z_OBJ_P(OBJ_PROP(exchange, slots.request)), Z_TYPE_P(body) == IS_OBJECT ? Z_OBJ_P(body) : NULL);
}

/* Calls what answers this kind of call. */
static enum call_outcome answer(callback *handler, zend_object *exchange, zval *value)
{
	if (!requests_on() || kind_of_exchange(exchange) != HTTP) {
		return call_handler(handler, exchange, value);
	}
	begin_request(exchange);
	return requests_are_front() ? call_front(handler, exchange, value) : call_handler(handler, exchange, value);
}

static bool is_watched_object(const zval *value)
{
	return Z_TYPE_P(value) == IS_OBJECT && (GC_FLAGS(Z_OBJ_P(value)) & IS_OBJ_WEAKLY_REFERENCED);
}

/* Whether objects of the application may go with the request or the call: those of a WeakMap. */
static bool is_watched(zend_object *exchange)
{
	const unsigned kind = kind_of_exchange(exchange);
	return is_watched_object(OBJ_PROP(exchange, property_offsets.face))
		|| (kind == GRPC && is_watched_object(OBJ_PROP(exchange, slots.grpc_call)))
		|| (kind == HTTP && is_watched_object(OBJ_PROP(exchange, slots.request)));
}

/* Whether there is something to do after a call that PHP code does. */
static bool has_more(zend_object *exchange)
{
	return UNEXPECTED(is_watched(exchange)) || (!requests_are_front() && (!is_silent() || (!requests_on() && leftovers_any()))) || leaks_due();
}

/* What the end of a call has printed, such as a destructor; or what was printed since that, such as
 * by the handler of a signal. */
static void settle_output(zend_object *exchange)
{
	zval of;
	if (exchange == NULL) {
		ZVAL_NULL(&of);
	} else {
		ZVAL_OBJ(&of, exchange);
	}
	zend_call_method(kept_output, kept_output->ce, NULL, ZEND_STRL("settle"), NULL, 1, &of, NULL);
}

ZEND_FUNCTION(Pronghorn_Internal_ring_serve)
{
	callback handlers[KINDS], failed;
	zval *output, *response;

	ZEND_PARSE_PARAMETERS_START(6, 6)
		Z_PARAM_FUNC_OR_NULL(handlers[HTTP].call, handlers[HTTP].cache)
		Z_PARAM_FUNC_OR_NULL(handlers[RAW].call, handlers[RAW].cache)
		Z_PARAM_FUNC_OR_NULL(handlers[GRPC].call, handlers[GRPC].cache)
		Z_PARAM_FUNC(failed.call, failed.cache)
		Z_PARAM_OBJECT(output)
		Z_PARAM_OBJECT(response)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached() || !fits(output, response)) {
		RETURN_THROWS();
	}
	if (!requests_on()) {
		leftovers_begin();
	}
	for (;;) {
		zval next, value;
		wait_for_next(&next);
		callback *handler = Z_TYPE(next) != IS_OBJECT ? NULL : &handlers[kind_of_exchange(Z_OBJ(next))];
		if (handler == NULL || !ZEND_FCI_INITIALIZED(handler->call)) {
			RETURN_COPY_VALUE(&next);
		}
		if (UNEXPECTED((OG(active) != NULL && OG(active)->buffer.used > 0) || (!requests_are_front() && !is_silent()))) {
			settle_output(NULL);
		}
		assign_property(property_offsets.current, Z_OBJ(next));
		enum call_outcome outcome = answer(handler, Z_OBJ(next), &value);
		bool ends = false;
		if (outcome == ANSWERED && has_deferred(Z_OBJ(next))) {
			do_deferred(&failed, Z_OBJ(next));
			ends = spoiled;
		}
		if (EG(exception) != NULL) {
			zval_ptr_dtor(&next);
			RETURN_THROWS();
		}
		if (outcome != ANSWERED || ends || has_more(Z_OBJ(next))) {
			array_init_size(return_value, 3);
			add_next_index_zval(return_value, &next);
			add_next_index_long(return_value, outcome);
			add_next_index_zval(return_value, &value);
			return;
		}
		/* What belongs to a call is gone before the wait for the next one begins. */
		requests_end();
		if (UNEXPECTED(printed_has_late())) {
			settle_output(Z_OBJ(next));
		}
		assign_property(property_offsets.current, NULL);
		assign_property(OBJ_PROP(Z_OBJ(next), property_offsets.face), NULL);
		if (kind_of_exchange(Z_OBJ(next)) == GRPC) {
			/* Each holds the other. */
			assign_property(OBJ_PROP(Z_OBJ(next), slots.grpc_call), NULL);
		}
		/* The call's face may be kept by the application, and with it the exchange. */
		zval *counts = OBJ_PROP(Z_OBJ(next), property_offsets.counts);
		if (UNEXPECTED(Z_TYPE_P(counts) != IS_NULL)) {
			assign_property(counts, NULL);
		}
		zval_ptr_dtor(&next);
	}
}

ZEND_FUNCTION(Pronghorn_Internal_ring_message)
{
	zend_long kind, call, flags, small;
	zend_string *context, *body;
	bool more;

	ZEND_PARSE_PARAMETERS_START(7, 7)
		Z_PARAM_LONG(kind)
		Z_PARAM_LONG(call)
		Z_PARAM_LONG(flags)
		Z_PARAM_LONG(small)
		Z_PARAM_STR(context)
		Z_PARAM_STR(body)
		Z_PARAM_BOOL(more)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	const native_envelope envelope = {
		.kind = (uint8_t) kind, .flags = (uint8_t) flags, .call = (uint32_t) call,
		.small = kind == NATIVE_FREE ? deadline_rest((uint32_t) call) : (uint16_t) small,
	};
	zend_string *whole = NULL;
	if (!more && (kind == NATIVE_REPLY || kind == NATIVE_CHUNK || kind == NATIVE_ERROR)) {
		if (requests_under_way()) {
			requests_finish();
			whole = kind == NATIVE_CHUNK ? with_end(&envelope, body) : NULL;
		}
		end_deadline(&envelope);
	}
	RETVAL_BOOL(send_message(&envelope, NULL, context, whole == NULL ? body : whole, more));
	if (whole != NULL) {
		zend_string_release(whole);
	}
}

ZEND_FUNCTION(Pronghorn_Internal_ring_ask)
{
	zend_long number;
	zend_string *method, *argument;

	ZEND_PARSE_PARAMETERS_START(3, 3)
		Z_PARAM_LONG(number)
		Z_PARAM_STR(method)
		Z_PARAM_STR(argument)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	if (channel_call() == 0) {
		RETURN_FALSE;
	}
	const native_envelope envelope = {.kind = NATIVE_ASK, .call = (uint32_t) number};
	if (!send_message(&envelope, NULL, method, argument, false)) {
		RETURN_NULL();
	}
	RETURN_TRUE;
}

/* The next frame that is no call, whole or in its beginning; NULL: the server is gone, or an
 * exception was thrown. What begins with no frame has the length 0. */
static const unsigned char *wait_for_message(size_t *length, native_envelope *envelope)
{
	for (;;) {
		*length = channel_look(envelope);
		const size_t there = ring_there(&channel);
		size_t enough = NATIVE_FRAME_START;
		if (*length != 0) {
			if (!native_is_call(envelope->kind)) {
				return ring_peek(&channel);
			}
			/* Once it is taken back, something comes behind it. */
			enough = there + 1;
		} else if (there >= NATIVE_FRAME_START) {
			*length = native_frame_length(ring_peek(&channel));
			if (*length == 0 || *length > RING_DOWN) {
				return ring_peek(&channel);
			}
			enough = *length;
		}
		if (!run_pending() || !wait_for(enough)) {
			return NULL;
		}
	}
}

/* An answer to that question, or any other frame as its bytes. False: an answer that nobody waits
 * for any more, or one that needs nobody. */
static bool read_answer(zval *into, const unsigned char *frame, size_t length, uint32_t number)
{
	native_envelope envelope;
	if (!native_read_envelope(frame, length, &envelope) || envelope.kind != NATIVE_ANSWER) {
		native_envelope call = {0};
		return read_frame(into, frame, length, &call);
	}
	if (envelope.call != number) {
		return false;
	}
	array_init_size(into, 2);
	add_next_index_bool(into, envelope.small == NATIVE_ANSWER_RESULT);
	const size_t head = NATIVE_FRAME + NATIVE_ENVELOPE;
	add_next_index_stringl(into, (const char *) frame + head, length - head);
	return true;
}

ZEND_FUNCTION(Pronghorn_Internal_ring_answer)
{
	zend_long number;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(number)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	bool done = false;
	ring_expect_answer(&channel);
	while (!done) {
		size_t length;
		native_envelope envelope;
		const unsigned char *frame = wait_for_message(&length, &envelope);
		if (frame == NULL) {
			RETURN_NULL();
		}
		if (length == 0) {
			/* No frame; enough of it to show. */
			RETURN_STRINGL((const char *) frame, MIN(ring_there(&channel), 80));
		}
		if (length <= RING_DOWN) {
			done = read_answer(return_value, frame, length, (uint32_t) number);
			ring_take(&channel, length);
			continue;
		}
		zend_string *whole = read_long_frame(length);
		if (whole == NULL) {
			RETURN_NULL();
		}
		done = read_answer(return_value, (const unsigned char *) ZSTR_VAL(whole), length, (uint32_t) number);
		zend_string_release(whole);
	}
}

ZEND_FUNCTION(Pronghorn_Internal_ring_write)
{
	zend_string *bytes;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(bytes)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	RETURN_BOOL(channel_put(ZSTR_VAL(bytes), ZSTR_LEN(bytes)));
}

ZEND_FUNCTION(Pronghorn_Internal_native_headers)
{
	zend_string *fields, *host;
	zend_long count;

	ZEND_PARSE_PARAMETERS_START(3, 3)
		Z_PARAM_STR_OR_NULL(fields)
		Z_PARAM_STR(host)
		Z_PARAM_LONG(count)
	ZEND_PARSE_PARAMETERS_END();

	if (count < 0 || count > UINT16_MAX || !native_read_headers(return_value, fields, host, (uint32_t) count)) {
		RETURN_NULL();
	}
}

ZEND_FUNCTION(Pronghorn_Internal_until_exit)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	zval result;

	ZEND_PARSE_PARAMETERS_START(1, -1)
		Z_PARAM_FUNC(call, cache)
		Z_PARAM_VARIADIC('*', call.params, call.param_count)
	ZEND_PARSE_PARAMETERS_END();

	exit_forget();
	bool deferred = deadline_begins_work_left();
	call.retval = &result;
	ZVAL_UNDEF(&result);
	held_count_own(false);
	zend_call_function(&call, &cache);
	held_count_own(true);
	if (deferred) {
		deadline_ends(0);
	}
	zval_ptr_dtor(&result);
	if (EG(exception) != NULL && zend_is_unwind_exit(EG(exception)) && !end_without_client(current_request())) {
		survive_exit(return_value);
	}
}

ZEND_FUNCTION(Pronghorn_Internal_places_seen)
{
	ZEND_PARSE_PARAMETERS_NONE();

	leftovers_places(return_value);
}

/* Reads the classes of the package, which the loop of handlers may not have done yet. */
static bool knows_exchange(const zend_object *exchange)
{
	const zend_object *http = exchange_templates[HTTP];
	if (!is_attached()) {
		return false;
	}
	if (exchange->ce != http->ce || property_offsets.response == NULL) {
		zend_argument_value_error(1, "must be an exchange of a request");
		return false;
	}
	return true;
}

ZEND_FUNCTION(Pronghorn_Internal_printed_watch)
{
	zval *output, *response;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_OBJECT(output)
		Z_PARAM_OBJECT(response)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached() || !fits(output, response)) {
		RETURN_THROWS();
	}
	printed_take_over(place_of_output, note_begun);
}

ZEND_FUNCTION(Pronghorn_Internal_printed_look_away)
{
	ZEND_PARSE_PARAMETERS_NONE();

	printed_give_back();
}

ZEND_FUNCTION(Pronghorn_Internal_printed_take)
{
	ZEND_PARSE_PARAMETERS_NONE();

	zend_string *taken = printed_take();
	if (taken == NULL) {
		RETURN_EMPTY_STRING();
	}
	RETURN_STR(taken);
}

ZEND_FUNCTION(Pronghorn_Internal_printed_close)
{
	zend_long above;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(above)
	ZEND_PARSE_PARAMETERS_END();

	printed_close(above);
}

ZEND_FUNCTION(Pronghorn_Internal_printed_settle)
{
	ZEND_PARSE_PARAMETERS_NONE();

	RETURN_LONG((zend_long) printed_settle());
}

ZEND_FUNCTION(Pronghorn_Internal_requests_take_over)
{
	bool front;
	zval *form, *output, *response;

	ZEND_PARSE_PARAMETERS_START(4, 4)
		Z_PARAM_BOOL(front)
		Z_PARAM_ZVAL(form)
		Z_PARAM_OBJECT(output)
		Z_PARAM_OBJECT(response)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached() || !fits(output, response)) {
		RETURN_THROWS();
	}
	requests_take_over(&slots, front, form);
}

ZEND_FUNCTION(Pronghorn_Internal_reset_keep)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (requests_on()) {
		zend_throw_error(NULL, "Calls of this process are reset already");
		RETURN_THROWS();
	}
	requests_keep();
}

ZEND_FUNCTION(Pronghorn_Internal_reset_again)
{
	ZEND_PARSE_PARAMETERS_NONE();

	RETURN_BOOL(!requests_on() && reset_is_keeping() && requests_reset());
}

ZEND_FUNCTION(Pronghorn_Internal_reset_let_go)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!requests_on()) {
		requests_let_go();
	}
}

ZEND_FUNCTION(Pronghorn_Internal_leaks_watch)
{
	zend_long every;
	bool settings;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_LONG(every)
		Z_PARAM_BOOL(settings)
	ZEND_PARSE_PARAMETERS_END();

	leaks_watch(every, settings);
}

ZEND_FUNCTION(Pronghorn_Internal_leaks_look)
{
	zend_string *route;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(route)
	ZEND_PARSE_PARAMETERS_END();

	leaks_look(route, return_value);
}

ZEND_FUNCTION(Pronghorn_Internal_leaks_collect)
{
	ZEND_PARSE_PARAMETERS_NONE();

	leaks_collect(return_value);
}

ZEND_FUNCTION(Pronghorn_Internal_request_begin)
{
	zend_object *exchange;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJ(exchange)
	ZEND_PARSE_PARAMETERS_END();

	if (!knows_exchange(exchange)) {
		RETURN_THROWS();
	}
	begin_request(exchange);
}

ZEND_FUNCTION(Pronghorn_Internal_request_serve)
{
	zend_object *exchange;
	callback handler;
	zval value;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_OBJ(exchange)
		Z_PARAM_FUNC(handler.call, handler.cache)
	ZEND_PARSE_PARAMETERS_END();

	if (!knows_exchange(exchange)) {
		RETURN_THROWS();
	}
	begin_request(exchange);
	enum call_outcome outcome = call_front(&handler, exchange, &value);
	array_init_size(return_value, 2);
	add_next_index_long(return_value, outcome);
	add_next_index_zval(return_value, &value);
}

ZEND_FUNCTION(Pronghorn_Internal_request_end)
{
	ZEND_PARSE_PARAMETERS_NONE();

	requests_end();
	/* PHP still has the call's last values. */
	requests_unsettled();
}

ZEND_FUNCTION(Pronghorn_Internal_request_last)
{
	zval *tell;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ZVAL(tell)
	ZEND_PARSE_PARAMETERS_END();

	RETURN_BOOL(has_channel() && requests_last(tell));
}

/* With threads, where the engine's state of this one is: needed before anything looks at it. */
static void find_globals(void)
{
#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
	ZEND_TSRMLS_CACHE_UPDATE();
#endif
}

PHP_INI_BEGIN()
	/* Seconds; 0 is for ever, as files have it. A page that waits for longer is of no use any more. */
	PHP_INI_ENTRY("pronghorn.session_lock_timeout", "30", PHP_INI_ALL, NULL)
PHP_INI_END()

/* The server passes the build as a descriptor, and says so on the command line, which children do
 * not inherit. It is of no use once this is loaded. */
static void close_own_file(void)
{
	zend_long descriptor;
	if (cfg_get_long("pronghorn.extension", &descriptor) == SUCCESS && descriptor > STDERR_FILENO && descriptor <= INT_MAX) {
		close((int) descriptor);
	}
}

static PHP_MINIT_FUNCTION(pronghorn)
{
	close_own_file();
	find_globals();
	register_pronghorn_symbols(module_number);
	deadline_startup(register_class_Pronghorn_DeadlineExceeded(zend_ce_error));
	native_startup();
	ring_startup();
	exit_startup();
	leftovers_startup();
	requests_startup();
	REGISTER_INI_ENTRIES();
	sessions_startup();
	session_close_startup();
	cache_startup(register_class_Pronghorn_Cache_SharedMemory(register_class_Pronghorn_Cache_Store()));
	properties_startup(register_class_Pronghorn_Internal_NativeProperties());
	statics_startup(register_class_Pronghorn_Internal_NativeStatics());
	if (!classic_is_on()) {
		booted_startup();
	}
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(pronghorn)
{
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_RINIT_FUNCTION(pronghorn)
{
	find_globals();
	booted_begin();
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(pronghorn)
{
	if (exchange_templates[HTTP] != NULL && pthread_equal(owner, pthread_self())) {
		for (unsigned kind = 0; kind < KINDS; kind++) {
			OBJ_RELEASE(exchange_templates[kind]);
			exchange_templates[kind] = NULL;
		}
		chunks_let_go();
	}
	requests_give_back();
	/* Also a script's own, while its resources are there. */
	reset_forget();
	messages_give_back();
	if (pthread_equal(owner, pthread_self())) {
		printed_end();
	}
	if (kept_output != NULL) {
		OBJ_RELEASE(kept_output);
		kept_output = NULL;
	}
	property_offsets.response = NULL;
	property_offsets.current = NULL;
	exit_forget();
	leftovers_forget();
	leaks_forget();
	classic_script_ended();
	return SUCCESS;
}

/* After all values of PHP are freed. */
static ZEND_MODULE_POST_ZEND_DEACTIVATE_D(pronghorn)
{
	if (pthread_equal(owner, pthread_self())) {
		printed_ended();
	}
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(pronghorn)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Pronghorn", PRONGHORN_VERSION);
	php_info_print_table_row(2, "Shared memory", channel.map != NULL ? "attached" : "not attached");
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

/* What is watched has to be there first. */
static const zend_module_dep dependencies[] = {
	ZEND_MOD_OPTIONAL("session")
	ZEND_MOD_OPTIONAL("mbstring")
	ZEND_MOD_OPTIONAL("libxml")
	ZEND_MOD_END
};

zend_module_entry pronghorn_module_entry = {
	STANDARD_MODULE_HEADER_EX,
	NULL,
	dependencies,
	"pronghorn",
	ext_functions,
	PHP_MINIT(pronghorn),
	PHP_MSHUTDOWN(pronghorn),
	PHP_RINIT(pronghorn),
	PHP_RSHUTDOWN(pronghorn),
	PHP_MINFO(pronghorn),
	PRONGHORN_VERSION,
	NO_MODULE_GLOBALS,
	ZEND_MODULE_POST_ZEND_DEACTIVATE_N(pronghorn),
	STANDARD_MODULE_PROPERTIES_EX,
};

#ifdef COMPILE_DL_PRONGHORN
#ifdef ZTS
ZEND_TSRMLS_CACHE_DEFINE()
#endif
/* Asked for it when it is loaded, before any module starts. */
ZEND_DLEXPORT zend_module_entry *get_module(void);
ZEND_DLEXPORT zend_module_entry *get_module(void)
{
	find_globals();
	classic_prepare();
	return &pronghorn_module_entry;
}
#endif
