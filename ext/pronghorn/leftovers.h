/* What a call leaves in PHP's own state, where the next visitor's would find it;
 * Pronghorn\Internal\Leftovers clears it. */
#ifndef PRONGHORN_LEFTOVERS_H
#define PRONGHORN_LEFTOVERS_H

#include "php.h"

/* Has a function of PHP's modules run by the watcher; `called` gets what it was, if there is one. */
void watch_function(const char *name, zif_handler watcher, zif_handler *called);

/* Once for the process, after the modules that are watched. */
void leftovers_startup(void);

/* This process is a worker: what header() is given is seen from now on. */
void leftovers_watch(void);

/* Calls are requests of PHP's own: nothing that they call is without effect. */
void leftovers_look_away(void);

/* Superglobals are now as they are to be after each call. The caller keeps a reference to each of
 * their arrays, so that no other one can come to lie in its place. */
void leftovers_begin(void);

/* Whether a call may have left something. A few loads where it has not. */
bool leftovers_any(void);

/* Adds function, file and line of each call of a function that has no effect in a worker, or starts
 * a session; forgets them. */
void leftovers_places(zval *list);

/* At the end of a request. */
void leftovers_forget(void);

#endif
