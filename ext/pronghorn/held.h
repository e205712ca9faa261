/* What this process holds open that processes forked from it would share, and which call of PHP has
 * opened it. Looks only in one that is to boot an application and to be forked. */
#ifndef PRONGHORN_HELD_H
#define PRONGHORN_HELD_H

#include <stdbool.h>
#include <stddef.h>

/* Before any script is compiled: from now on each call of a function of PHP is looked at. */
void held_startup(void);

/* What is open by now is PHP's own, and the server's. */
void held_begin(void);

/* Whether something is open that two processes must not share; `text` gets what, and by which
 * calls. */
bool held_any(char *text, size_t room);

/* No call is looked at any more. */
void held_end(void);

#endif
