/* PHP's session module. */
#ifndef PRONGHORN_SESSION_H
#define PRONGHORN_SESSION_H

#ifdef HAVE_PHP_SESSION

#include "ext/session/php_session.h"
#include "zend_modules.h"

/* NULL: its module is not there. Found by the module's entry, because a session that is a module of
 * its own can't be linked to. */
static inline php_ps_globals *session_globals(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("session"));
	if (module == NULL || module->globals_size != sizeof(php_ps_globals)) {
		return NULL;
	}
#ifdef ZTS
	return ts_resource(*module->globals_id_ptr);
#else
	return module->globals_ptr;
#endif
}

/* The functions of a handler that the application has set, which releases of PHP declare in two
 * ways. */
#define SESSION_FUNCTIONS (sizeof ((php_ps_globals *) NULL)->mod_user_names / sizeof(zval))

static inline zval *session_functions(php_ps_globals *session)
{
	return (zval *) &session->mod_user_names;
}

#endif
#endif
