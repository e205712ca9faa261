/* The extension: a box of shared memory as a stream, for the package pronghorn/worker. Without a server of ours around it
 * it does nothing. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <pthread.h>

#include "php.h"
#include "ext/standard/info.h"

#include "ring.h"
#include "pronghorn_arginfo.h"

#define PRONGHORN_VERSION "0.1.0"

/* Of the process, as the box is. */
static ring_t ring;
/* The thread that attached it: with threads in PHP, another one must not read its calls. */
static pthread_t owner;

static bool is_attached(void)
{
	if (ring.map == NULL || !pthread_equal(owner, pthread_self())) {
		zend_throw_error(NULL, "This process is no worker of Pronghorn, or was forked from one");
		return false;
	}
	return true;
}

static void in_child(void)
{
	ring_forget(&ring);
}

ZEND_FUNCTION(ring_attach)
{
	zend_long memory, page, bell, server;

	ZEND_PARSE_PARAMETERS_START(4, 4)
		Z_PARAM_LONG(memory)
		Z_PARAM_LONG(page)
		Z_PARAM_LONG(bell)
		Z_PARAM_LONG(server)
	ZEND_PARSE_PARAMETERS_END();

	if (ring.map != NULL) {
		RETURN_STRING("it is in use already");
	}
	const char *wrong = ring_attach(&ring, (int) memory, (int) page, (int) bell, (int) server);
	if (wrong != NULL) {
		RETURN_STRING(wrong);
	}
	owner = pthread_self();
}

ZEND_FUNCTION(ring_read)
{
	zend_long most;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(most)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	if (most < 1) {
		zend_argument_value_error(1, "must be at least 1");
		RETURN_THROWS();
	}
	switch (ring_wait(&ring)) {
		case RING_INTERRUPTED:
			/* PHP runs its handlers as soon as this returns. */
			RETURN_EMPTY_STRING();
		case RING_GONE:
			RETURN_NULL();
		case RING_OK:
			break;
	}
	size_t length = ring_there(&ring);
	if (length > RING_DOWN) {
		RETURN_NULL();
	}
	if (length > (size_t) most) {
		length = (size_t) most;
	}
	zend_string *bytes = zend_string_alloc(length, false);
	ring_take(&ring, ZSTR_VAL(bytes), length);
	ZSTR_VAL(bytes)[length] = '\0';
	RETURN_NEW_STR(bytes);
}

ZEND_FUNCTION(ring_readable)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	RETURN_BOOL(ring_there(&ring) > 0);
}

ZEND_FUNCTION(ring_write)
{
	zend_string *bytes;
	zval *sent;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(bytes)
		Z_PARAM_ZVAL(sent)
	ZEND_PARSE_PARAMETERS_END();

	if (!is_attached()) {
		RETURN_THROWS();
	}
	zend_long from = zval_get_long(sent);
	if (from < 0 || (size_t) from > ZSTR_LEN(bytes)) {
		zend_argument_value_error(2, "must be inside of the bytes");
		RETURN_THROWS();
	}
	size_t so_far = (size_t) from;
	ring_outcome outcome = ring_put(&ring, ZSTR_VAL(bytes), ZSTR_LEN(bytes), &so_far);
	ZEND_TRY_ASSIGN_REF_LONG(sent, (zend_long) so_far);
	switch (outcome) {
		case RING_OK:
			RETURN_TRUE;
		case RING_INTERRUPTED:
			RETURN_FALSE;
		case RING_GONE:
			RETURN_NULL();
	}
}

static PHP_MINIT_FUNCTION(pronghorn)
{
	/* The box is not mapped in a child; what knows of it is forgotten there. */
	pthread_atfork(NULL, NULL, in_child);
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
	NULL,
	NULL,
	PHP_MINFO(pronghorn),
	PRONGHORN_VERSION,
	STANDARD_MODULE_PROPERTIES,
};

#ifdef COMPILE_DL_PRONGHORN
#ifdef ZTS
ZEND_TSRMLS_CACHE_DEFINE()
#endif
ZEND_GET_MODULE(pronghorn)
#endif
