/* The extension's surface: what the package pronghorn/worker calls. Without a server of ours around it it does nothing. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <fcntl.h>
#include <pthread.h>

#include "php.h"
#include "ext/standard/info.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"

#include "classic.h"
#include "deadline.h"
#include "exit.h"
#include "native.h"
#include "opcache.h"
#include "ring.h"

#define PRONGHORN_VERSION "0.1.0"
/* Changes whenever a function of ours does. */
#define PRONGHORN_API 2

#include "pronghorn_arginfo.h"

/* Bytes of a frame before its options: enough to know its length. */
#define HEAD 12

/* Of the process, as the box is. */
static ring_t ring;
/* The thread that attached it: with threads in PHP, another one must not read its calls. */
static pthread_t owner;
/* What calls are clones of, and where everything is in it. */
static zend_object *empty;
static native_slots slots;

static bool is_attached(void)
{
	if (ring.map == NULL || !pthread_equal(owner, pthread_self())) {
		zend_throw_error(NULL, "This process is no worker of Pronghorn with shared memory, or was forked from one");
		return false;
	}
	return true;
}

static void in_child(void)
{
	ring_forget(&ring);
}

/* Runs what a signal has made pending, as the engine does between two lines. False: an exception was thrown. */
static bool run_pending(void)
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

/* Waits until there are so many bytes. False: the server is gone, or an exception was thrown. */
static bool wait_for(size_t bytes)
{
	ring_outcome outcome;
	while ((outcome = ring_wait(&ring, bytes)) == RING_INTERRUPTED) {
		/* A handler may have forked, and its child has no box. */
		if (!run_pending() || ring.map == NULL) {
			return false;
		}
	}
	return outcome == RING_OK;
}

/* Waits for room, inside of a frame: what a signal's handler throws meanwhile waits until the frame is out. */
static bool wait_for_room(size_t bytes)
{
	ring_outcome outcome;
	while ((outcome = ring_wait_for_room(&ring, bytes)) == RING_INTERRUPTED) {
		if (EG(exception) == NULL) {
			run_pending();
		}
		if (ring.map == NULL) {
			return false;
		}
	}
	return outcome == RING_OK;
}

/* Bytes of any length, in as many pieces as there is room. */
static bool put(const char *bytes, size_t length)
{
	while (length > 0) {
		/* At least a part of it that is worth a wake-up. */
		size_t piece = MIN(length, RING_UP / 4);
		if (!wait_for_room(piece)) {
			return false;
		}
		memcpy(ring_room(&ring), bytes, piece);
		ring_put(&ring, piece);
		bytes += piece;
		length -= piece;
	}
	return true;
}

/* A whole message, in one step where it fits: envelope, fields or context, body. */
static bool send_message(const native_envelope *envelope, const native_fields *fields, zend_string *context, zend_string *body, bool more)
{
	size_t rest = fields != NULL ? native_fields_length(fields) : context != NULL ? ZSTR_LEN(context) : 0;
	size_t head = NATIVE_FRAME + NATIVE_ENVELOPE + rest, length = ZSTR_LEN(body);
	if (length > UINT32_MAX - NATIVE_ENVELOPE - rest || head > RING_UP) {
		zend_value_error("A message to the server is too long");
		return false;
	}
	bool at_once = length <= RING_UP - head;
	if (!wait_for_room(at_once ? head + length : head)) {
		return false;
	}
	unsigned char *start = ring_room(&ring);
	unsigned char *at = native_write_head(start, envelope, rest, length, more);
	if (fields != NULL) {
		at = native_write_fields(at, fields);
	} else if (context != NULL) {
		memcpy(at, ZSTR_VAL(context), rest);
		at += rest;
	}
	if (at_once) {
		memcpy(at, ZSTR_VAL(body), length);
		at += length;
	}
	ring_put(&ring, (size_t) (at - start));
	return at_once || put(ZSTR_VAL(body), length);
}

static bool send_empty(native_envelope envelope)
{
	return send_message(&envelope, NULL, NULL, ZSTR_EMPTY_ALLOC(), false);
}

/* A frame that the box can't hold at once. NULL: the server is gone, or an exception was thrown. */
static zend_string *read_long_frame(size_t length)
{
	zend_string *frame = zend_string_alloc(length, false);
	for (size_t have = 0; have < length;) {
		if (!wait_for(1)) {
			zend_string_efree(frame);
			return NULL;
		}
		size_t piece = MIN(MIN(ring_there(&ring), RING_DOWN), length - have);
		memcpy(ZSTR_VAL(frame) + have, ring_peek(&ring), piece);
		ring_take(&ring, piece);
		have += piece;
	}
	ZSTR_VAL(frame)[length] = '\0';
	return frame;
}

/* Makes a call of a request, else a string. False: it was answered here. */
static bool read_frame(zval *into, const unsigned char *frame, size_t length, uint32_t *call)
{
	native_envelope envelope;
	if (native_read_envelope(frame, length, &envelope)) {
		zend_object *exchange = NULL;
		if (envelope.kind == NATIVE_REQUEST) {
			*call = envelope.call;
			exchange = native_read_request(&slots, empty, frame, length, &envelope);
		}
		if (exchange != NULL) {
			ZVAL_OBJ(into, exchange);
			return true;
		}
		if (envelope.kind == NATIVE_PING) {
			send_empty((native_envelope) {.kind = NATIVE_PONG, .call = envelope.call});
			return false;
		}
	}
	/* Rare, or nonsense: PHP has the words for it. */
	ZVAL_STRINGL(into, (const char *) frame, length);
	return true;
}

/* A call is begun when its bytes are taken: nothing is left to do that could be seen of it if this process ended. */
static bool begin(zval *into, uint32_t call)
{
	if (call == 0) {
		return true;
	}
	if (ring_claim(&ring, call)) {
		deadline_begins(call);
		return true;
	}
	zval_ptr_dtor(into);
	ZVAL_NULL(into);
	return false;
}

/* Waits for the frame after this one. False: that one needs nobody. */
static bool next(zval *into)
{
	if (!run_pending() || !wait_for(HEAD)) {
		return true;
	}
	uint32_t call = 0;
	size_t length = native_frame_length(ring_peek(&ring));
	if (length == 0) {
		/* No frame; enough of it to show. */
		ZVAL_STRINGL(into, (const char *) ring_peek(&ring), MIN(ring_there(&ring), 80));
		return true;
	}
	if (length > RING_DOWN) {
		zend_string *frame = read_long_frame(length);
		bool done = frame == NULL || read_frame(into, (const unsigned char *) ZSTR_VAL(frame), length, &call);
		if (frame != NULL) {
			zend_string_release(frame);
		}
		return done && begin(into, call);
	}
	if (!wait_for(length)) {
		return true;
	}
	bool done = read_frame(into, ring_peek(&ring), length, &call);
	ring_take(&ring, length);
	return done && begin(into, call);
}

/* A descriptor that programs started by this one don't get. */
static void hide(zend_long descriptor)
{
	fcntl((int) descriptor, F_SETFD, FD_CLOEXEC);
}

ZEND_FUNCTION(Pronghorn_Internal_ring_attach)
{
	zend_long memory, page, bell, server, output, look_after;
	zval *exchange;

	ZEND_PARSE_PARAMETERS_START(7, 7)
		Z_PARAM_LONG(memory)
		Z_PARAM_LONG(page)
		Z_PARAM_LONG(bell)
		Z_PARAM_LONG(server)
		Z_PARAM_LONG(output)
		Z_PARAM_LONG(look_after)
		Z_PARAM_OBJECT(exchange)
	ZEND_PARSE_PARAMETERS_END();

	if (look_after < 0 || look_after > 60000) {
		zend_argument_value_error(6, "must be between 0 and 60000");
		RETURN_THROWS();
	}
	if (ring.map != NULL) {
		RETURN_STRING("it is in use already");
	}
	const zval *request = zend_read_property(Z_OBJCE_P(exchange), Z_OBJ_P(exchange), ZEND_STRL("request"), true, &EG(uninitialized_zval));
	if (Z_TYPE_P(request) != IS_OBJECT) {
		zend_argument_value_error(7, "must have a request");
		RETURN_THROWS();
	}
	const char *missing = native_find_slots(&slots, Z_OBJCE_P(exchange), Z_OBJCE_P(request));
	if (missing != NULL) {
		zend_argument_value_error(7, "must have a property $%s, or its request", missing);
		RETURN_THROWS();
	}
	if (!deadline_watch()) {
		RETURN_STRING("the signal of the deadline can't be handled");
	}
	const char *wrong = ring_attach(&ring, (int) memory, (int) page, (int) bell, (int) server, (unsigned) look_after);
	if (wrong != NULL) {
		RETURN_STRING(wrong);
	}
	hide(server);
	hide(output);
	opcache_watch();
	owner = pthread_self();
	empty = Z_OBJ_P(exchange);
	GC_ADDREF(empty);
	RETURN_NULL();
}

ZEND_FUNCTION(Pronghorn_Internal_ring_next)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	ZVAL_NULL(return_value);
	enum opcache_wish wish = opcache_wish();
	if (wish != OPCACHE_NOTHING) {
		send_empty((native_envelope) {.kind = NATIVE_RENEW, .flags = NATIVE_IGNORABLE, .small = (uint16_t) wish, .call = 1});
	}
	while (!next(return_value)) {
	}
}

ZEND_FUNCTION(Pronghorn_Internal_ring_peek)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	size_t there;
	while ((there = ring_there(&ring)) >= HEAD && there <= RING_DOWN) {
		const unsigned char *frame = ring_peek(&ring);
		size_t length = native_frame_length(frame);
		native_envelope envelope;
		if (length == 0 || length > there) {
			/* Nonsense waits for its message, and the rest for its bytes. */
			break;
		}
		if (!native_read_envelope(frame, length, &envelope) || envelope.kind != NATIVE_REQUEST) {
			RETVAL_STRINGL((const char *) frame, length);
			ring_take(&ring, length);
			return;
		}
		if (!ring_is_taken_back(&ring, envelope.call)) {
			/* It waits for its turn. */
			break;
		}
		ring_take(&ring, length);
	}
	RETURN_NULL();
}

/* Nothing interrupts what follows a reply, but for what it has deferred, in until_exit: nobody else would catch it. */
static void end_deadline(const native_envelope *reply)
{
	deadline_ends(reply->flags & NATIVE_BUSY ? reply->call : 0);
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
	const native_envelope envelope = {
		.kind = NATIVE_REPLY, .flags = (uint8_t) flags, .small = (uint16_t) status, .call = (uint32_t) call,
	};
	if (!more) {
		end_deadline(&envelope);
	}
	native_fields fields;
	bool sent = native_collect_fields(&fields, headers) && send_message(&envelope, &fields, NULL, body, more);
	native_release_fields(&fields);
	RETURN_BOOL(sent);
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
		.kind = (uint8_t) kind, .flags = (uint8_t) flags, .small = (uint16_t) small, .call = (uint32_t) call,
	};
	if (!more && (kind == NATIVE_REPLY || kind == NATIVE_CHUNK || kind == NATIVE_ERROR)) {
		end_deadline(&envelope);
	}
	RETURN_BOOL(send_message(&envelope, NULL, context, body, more));
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
	RETURN_BOOL(put(ZSTR_VAL(bytes), ZSTR_LEN(bytes)));
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
	zend_call_function(&call, &cache);
	if (deferred) {
		deadline_ends(0);
	}
	zval_ptr_dtor(&result);
	/* A forked child that exits has to end, and not to serve its parent's calls. */
	if (EG(exception) == NULL || !zend_is_unwind_exit(EG(exception)) || ring.map == NULL || !exit_place(return_value)) {
		return;
	}
	zend_clear_exception();
	EG(exit_status) = 0;
}

/* With threads, where the engine's state of this one is: needed before anything looks at it. */
static void find_globals(void)
{
#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
	ZEND_TSRMLS_CACHE_UPDATE();
#endif
}

static PHP_MINIT_FUNCTION(pronghorn)
{
	find_globals();
	register_pronghorn_symbols(module_number);
	deadline_startup(register_class_Pronghorn_DeadlineExceeded(zend_ce_error));
	native_startup();
	exit_startup();
	/* The box is not mapped in a child; what knows of it is forgotten there. */
	pthread_atfork(NULL, NULL, in_child);
	return SUCCESS;
}

static PHP_RINIT_FUNCTION(pronghorn)
{
	find_globals();
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(pronghorn)
{
	if (empty != NULL && pthread_equal(owner, pthread_self())) {
		OBJ_RELEASE(empty);
		empty = NULL;
	}
	exit_forget();
	classic_script_ended();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(pronghorn)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Pronghorn", PRONGHORN_VERSION);
	php_info_print_table_row(2, "Shared memory", ring.map != NULL ? "attached" : "not attached");
	php_info_print_table_end();
}

zend_module_entry pronghorn_module_entry = {
	STANDARD_MODULE_HEADER,
	"pronghorn",
	ext_functions,
	PHP_MINIT(pronghorn),
	NULL,
	PHP_RINIT(pronghorn),
	PHP_RSHUTDOWN(pronghorn),
	PHP_MINFO(pronghorn),
	PRONGHORN_VERSION,
	STANDARD_MODULE_PROPERTIES,
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
