/* Where exit was called. PHP keeps no trace of it, and a call that it ended silently wants a place
 * in its report. */
#ifndef PRONGHORN_EXIT_H
#define PRONGHORN_EXIT_H

#include "php.h"

/* Once for the process. */
void exit_startup(void);

/* Forgets the last one; also at the end of a request. */
void exit_forget(void);

/* Adds file and line of the last one. False: there was none. A fatal error ends a script in the
 * same way in some releases of PHP, and must not be taken for one. */
bool exit_place(zval *list);

#endif
