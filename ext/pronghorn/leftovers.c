#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "leftovers.h"

#include "SAPI.h"
#include "zend_modules.h"

#include "session.h"

/* As many of one call are told; who mends them is told of others. */
#define MOST_PLACES 16

struct place {
	zend_string *function;
	zend_string *file;
	uint32_t line;
};
ZEND_TLS struct place places[MOST_PLACES];
ZEND_TLS uint32_t places_count;

static const char *const global_names[] = {"_GET", "_POST", "_COOKIE", "_FILES", "_REQUEST", "_SERVER"};
#define GLOBALS_COUNT (sizeof global_names / sizeof *global_names)
static zend_string *globals[GLOBALS_COUNT];
static zend_string *session_global;
/* Their arrays, and where they were in the table of globals. */
ZEND_TLS const zend_array *arrays[GLOBALS_COUNT];
ZEND_TLS uint32_t positions[GLOBALS_COUNT];

static zif_handler start_called, code_called;
static int (*header_called)(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers);
#ifdef HAVE_PHP_SESSION
ZEND_TLS const php_ps_globals *session;
#endif

/* Where the function of PHP was called that runs now. Nobody asks in a process that is no worker,
 * or is one for scripts. */
static void remember(void)
{
	const zend_execute_data *frame = EG(current_execute_data);
	const zend_string *function = NULL;
	while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->type))) {
		if (function == NULL && frame->func != NULL) {
			function = frame->func->common.function_name;
		}
		frame = frame->prev_execute_data;
	}
	if (frame == NULL || function == NULL || places_count == MOST_PLACES) {
		return;
	}
	const struct place place = {
		.function = (zend_string *) function, .file = frame->func->op_array.filename, .line = frame->opline->lineno,
	};
	for (uint32_t i = 0; i < places_count; i++) {
		if (places[i].line == place.line && zend_string_equals(places[i].file, place.file)
			&& zend_string_equals(places[i].function, place.function)) {
			return;
		}
	}
	zend_string_addref(place.function);
	zend_string_addref(place.file);
	places[places_count++] = place;
}

static ZEND_FUNCTION(pronghorn_session_start)
{
	if (header_called != NULL) {
		remember();
	}
	start_called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_FUNCTION(pronghorn_http_response_code)
{
	const int before = SG(sapi_headers).http_response_code;
	code_called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (header_called != NULL && SG(sapi_headers).http_response_code != before && SG(sapi_headers).http_response_code != 200) {
		remember();
	}
}

static bool runs(const char *beginning)
{
	const zend_execute_data *frame = EG(current_execute_data);
	const zend_string *name = frame == NULL || frame->func == NULL ? NULL : frame->func->common.function_name;
	return name != NULL && strncmp(ZSTR_VAL(name), beginning, strlen(beginning)) == 0;
}

/* PHP's command line drops what it is given here. A session's own cookie and its fields for caches
 * come with the session. */
static int on_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers)
{
	if ((op == SAPI_HEADER_ADD || op == SAPI_HEADER_REPLACE) && !runs("session_")) {
		remember();
	}
	return header_called(header, op, headers);
}

static int drop_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers)
{
	(void) header, (void) op, (void) headers;
	return 0;
}

void watch_function(const char *name, zif_handler watcher, zif_handler *called)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (function != NULL && function->type == ZEND_INTERNAL_FUNCTION) {
		*called = function->internal_function.handler;
		function->internal_function.handler = watcher;
	}
}

void leftovers_startup(void)
{
	for (size_t i = 0; i < GLOBALS_COUNT; i++) {
		globals[i] = zend_string_init_interned(global_names[i], strlen(global_names[i]), true);
	}
	session_global = zend_string_init_interned(ZEND_STRL("_SESSION"), true);
	watch_function("session_start", ZEND_FN(pronghorn_session_start), &start_called);
	watch_function("http_response_code", ZEND_FN(pronghorn_http_response_code), &code_called);
}

void leftovers_watch(void)
{
	if (header_called == NULL) {
		header_called = sapi_module.header_handler != NULL ? sapi_module.header_handler : drop_header;
		sapi_module.header_handler = on_header;
	}
#ifdef HAVE_PHP_SESSION
	session = session_globals();
#endif
}

void leftovers_look_away(void)
{
	if (header_called != NULL) {
		sapi_module.header_handler = header_called == drop_header ? NULL : header_called;
		header_called = NULL;
	}
	leftovers_forget();
}

/* A look at where it was is enough, almost always. */
static const zend_array *array_of(size_t global)
{
	zend_array *table = &EG(symbol_table);
	uint32_t at = positions[global];
	zval *value;
	if (EXPECTED(at < table->nNumUsed && table->arData[at].key == globals[global])) {
		value = &table->arData[at].val;
	} else {
		value = zend_hash_find_known_hash(table, globals[global]);
		if (value == NULL) {
			return NULL;
		}
		positions[global] = (uint32_t) ((Bucket *) value - table->arData);
	}
	ZVAL_DEINDIRECT(value);
	ZVAL_DEREF(value);
	return Z_TYPE_P(value) == IS_ARRAY ? Z_ARRVAL_P(value) : NULL;
}

void leftovers_begin(void)
{
	for (size_t i = 0; i < GLOBALS_COUNT; i++) {
		arrays[i] = array_of(i);
	}
}

static bool has_session(void)
{
#ifdef HAVE_PHP_SESSION
	if (session == NULL) {
		return false;
	}
	return session->session_status == php_session_active || (session->id != NULL && ZSTR_LEN(session->id) > 0)
		|| zend_hash_find_known_hash(&EG(symbol_table), session_global) != NULL;
#else
	return false;
#endif
}

bool leftovers_any(void)
{
	const int status = SG(sapi_headers).http_response_code;
	if (places_count > 0 || (status != 0 && status != 200) || SG(headers_sent) || has_session()) {
		return true;
	}
	for (size_t i = 0; i < GLOBALS_COUNT; i++) {
		if (arrays[i] != array_of(i)) {
			return true;
		}
	}
	return false;
}

void leftovers_places(zval *list)
{
	array_init_size(list, places_count);
	for (uint32_t i = 0; i < places_count; i++) {
		zval place;
		array_init_size(&place, 3);
		add_next_index_str(&place, zend_string_copy(places[i].function));
		add_next_index_str(&place, zend_string_copy(places[i].file));
		add_next_index_long(&place, places[i].line);
		add_next_index_zval(list, &place);
	}
	/* A call that closes all buffers prints past them: PHP would refuse each later session. The
	 * command line sends no headers, so that to send them once more does nothing. */
	SG(headers_sent) = 0;
	leftovers_forget();
}

void leftovers_forget(void)
{
	while (places_count > 0) {
		places_count--;
		zend_string_release(places[places_count].function);
		zend_string_release(places[places_count].file);
	}
}
