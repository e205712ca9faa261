/* PHP's session module. */
#ifndef PRONGHORN_SESSION_H
#define PRONGHORN_SESSION_H

#ifdef HAVE_PHP_SESSION

#include "ext/session/php_session.h"

#include "module_globals.h"

/* NULL: its module is not there. */
static inline php_ps_globals *session_globals(void)
{
	return module_globals("session", sizeof(php_ps_globals));
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
