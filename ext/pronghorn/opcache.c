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

static double number_in(const zval *of, const char *name)
{
	zval *number = of == NULL || Z_TYPE_P(of) != IS_ARRAY ? NULL : zend_hash_str_find(Z_ARR_P(of), name, strlen(name));
	return number == NULL ? 0 : zval_get_double(number);
}

/* Forked workers have one OPcache, so another one may have reset it. A full one begins anew only
 * where so much of it is wasted. */
static enum opcache_wish look(void)
{
	zval name, argument, status;
	enum opcache_wish wish = OPCACHE_NOTHING;
	ZVAL_STRING(&name, "opcache_get_status");
	ZVAL_FALSE(&argument);
	ZVAL_UNDEF(&status);
	if (call_user_function(NULL, NULL, &name, &status, 1, &argument) == SUCCESS && Z_TYPE(status) == IS_ARRAY) {
		const zval *memory = zend_hash_str_find(Z_ARR(status), ZEND_STRL("memory_usage"));
		const double wasted = number_in(memory, "current_wasted_percentage");
		const double most = (double) zend_ini_long(ZEND_STRL("opcache.max_wasted_percentage"), false);
		if (number_in(&status, "restart_pending") != 0) {
			wish = wasted >= most ? OPCACHE_WAS_FULL : OPCACHE_WAS_RESET;
		}
	}
	zval_ptr_dtor(&status);
	zval_ptr_dtor(&name);
	return wish;
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
	enum opcache_wish wish = OPCACHE_NOTHING;
	if (was_reset) {
		wish = OPCACHE_WAS_RESET;
	} else if ((calls & (calls - 1)) == 0 || calls % CALLS == 0) {
		wish = look();
	}
	told = wish != OPCACHE_NOTHING;
	return wish;
}
