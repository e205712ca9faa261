/* Where exit was called. PHP keeps no trace of it, and a call that it ended silently wants a place in its report. */
#ifndef PRONGHORN_EXIT_H
#define PRONGHORN_EXIT_H

#include "php.h"

/* Once for the process. */
void exit_startup(void);

/* At the end of a request. */
void exit_shutdown(void);

/* Adds file and line of the last one, '' and 0 when nobody knows. */
void exit_place(zval *list);

#endif
