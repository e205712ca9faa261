/* What a call changes in PHP's own state, and PHP takes back at the end of a request: a kept
 * worker is one request of PHP that lasts for thousands of calls. docs/reference/reset-list.md has
 * the list. */
#ifndef PRONGHORN_RESET_H
#define PRONGHORN_RESET_H

#include "php.h"

/* Once for the process, after the modules whose functions are watched. */
void reset_startup(void);

/* What is there now is there again after each call. */
void reset_keep(void);

bool reset_is_keeping(void);

void reset_tell_exception(void);

/* Says what is thrown and nobody catches, and goes on. Whether there was something. */
static inline bool tell_exception(void)
{
	if (EXPECTED(EG(exception) == NULL)) {
		return false;
	}
	reset_tell_exception();
	return true;
}

/* Back to it, whatever destructors do meanwhile. Settings stay as long as a session is open. A few
 * loads where a call has changed nothing. Whether code of the application may have run, or changed
 * something. */
bool reset_restore(void);

/* Whether something of that was changed since. */
bool reset_is_due(void);

/* Runs the functions that were registered for the end of the call, but not those of the boot. What
 * one throws is there afterwards, and ends the rest. */
void reset_run_shutdown_functions(void);
bool reset_has_shutdown_functions(void);

/* Lets go of what was kept. */
void reset_let_go(void);

/* The same at the end of the process's request. */
void reset_forget(void);

#endif
