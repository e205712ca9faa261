/* PHP calls no function while an exception is pending. So it skips `close` of a session handler
 * whose `write` has thrown, be it at the deadline, and takes the session for closed all the same.
 * What ends such a lock elsewhere is the end of the process: here it goes on, and the next request
 * of the visitor would wait for the lock. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "php.h"
#include "session_close.h"

#include "session.h"

#ifdef HAVE_PHP_SESSION

#include "zend_exceptions.h"

/* PHP's module for such handlers, and ours, which differs from it by how it closes. */
static const ps_module *of_php;
static ps_module ours;
static zif_handler set_save_handler;

/* What the handler has opened by its parent, SessionHandler, and has not closed by it: a file, which
 * is locked. */
static void close_parent(php_ps_globals *session, void **mod_data)
{
	const ps_module *parent = session->default_mod;
	const bool is_parent = parent != NULL && parent->s_close != ours.s_close && parent->s_close != of_php->s_close;
	if (*mod_data != NULL && is_parent) {
		session->mod_user_is_open = false;
		parent->s_close(mod_data);
	}
}

/* False: a fatal error has ended it. */
static zend_never_inline bool close_by_php(void **mod_data, int *result)
{
	volatile bool is_whole = true;
	zend_try {
		*result = of_php->s_close(mod_data);
	} zend_catch {
		is_whole = false;
	} zend_end_try();
	return is_whole;
}

static PS_CLOSE_FUNC(ours)
{
	php_ps_globals *session = session_globals();
	int result = FAILURE;

	zend_object *pending = EG(exception);
	EG(exception) = NULL;
	if (EG(current_execute_data) == NULL) {
		/* At the end of PHP's request: a fatal error has ended another function of the handler. */
		session->in_save_handler = false;
	}
	const bool is_whole = close_by_php(mod_data, &result);
	close_parent(session, mod_data);
	if (!is_whole) {
		zend_bailout();
	}
	if (EG(exception) == NULL) {
		EG(exception) = pending;
	} else {
		zend_exception_set_previous(EG(exception), pending);
	}
	return result;
}

/* The one way to set such a handler. PHP compares the module with its own. */
static ZEND_FUNCTION(pronghorn_set_save_handler)
{
	php_ps_globals *session = session_globals();
	if (session->mod == &ours) {
		session->mod = of_php;
	}
	set_save_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (session->mod != NULL && strcmp(session->mod->s_name, "user") == 0) {
		of_php = session->mod;
		ours = *of_php;
		ours.s_close = ps_close_ours;
		session->mod = &ours;
	}
}

void session_close_startup(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("session_set_save_handler"));
	if (session_globals() != NULL && function != NULL && function->type == ZEND_INTERNAL_FUNCTION) {
		set_save_handler = function->internal_function.handler;
		function->internal_function.handler = ZEND_FN(pronghorn_set_save_handler);
	}
}

#else

void session_close_startup(void)
{
}

#endif
