#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "opcache.h"

/* Between two looks whether it is full; before, there are some soon after the start, when most is
 * compiled. A look takes as long as a call of a simple handler. */
#define CALLS 1024

static zif_handler reset;
static bool watching, was_reset, told;
static unsigned calls;

static ZEND_FUNCTION(pronghorn_opcache_reset)
{
	reset(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	was_reset |= Z_TYPE_P(return_value) == IS_TRUE;
}

static bool waits_for_restart(void)
{
	zval name, argument, status;
	bool waits = false;
	ZVAL_STRING(&name, "opcache_get_status");
	ZVAL_FALSE(&argument);
	ZVAL_UNDEF(&status);
	if (call_user_function(NULL, NULL, &name, &status, 1, &argument) == SUCCESS && Z_TYPE(status) == IS_ARRAY) {
		zval *pending = zend_hash_str_find(Z_ARR(status), ZEND_STRL("restart_pending"));
		waits = pending != NULL && zend_is_true(pending);
	}
	zval_ptr_dtor(&status);
	zval_ptr_dtor(&name);
	return waits;
}

void opcache_watch(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_reset"));
	const char *restricted = zend_ini_string(ZEND_STRL("opcache.restrict_api"), false);
	/* Where asking is restricted, it warns whoever asks. */
	if (function == NULL || function->type != ZEND_INTERNAL_FUNCTION || watching || (restricted != NULL && *restricted != '\0')) {
		return;
	}
	reset = function->internal_function.handler;
	function->internal_function.handler = ZEND_FN(pronghorn_opcache_reset);
	watching = true;
}

enum opcache_wish opcache_wish(void)
{
	if (!watching || told) {
		return OPCACHE_NOTHING;
	}
	calls++;
	if (was_reset) {
		told = true;
		return OPCACHE_WAS_RESET;
	}
	if ((calls & (calls - 1)) == 0 || calls % CALLS == 0) {
		told = waits_for_restart();
	}
	return told ? OPCACHE_WAS_FULL : OPCACHE_NOTHING;
}
