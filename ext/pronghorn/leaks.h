/* Finds what calls leave behind for the next: static properties, static variables, globals and
 * settings of PHP that calls of one route change each time. docs/reference/leaks.md says what
 * counts. */
#ifndef PRONGHORN_LEAKS_H
#define PRONGHORN_LEAKS_H

#include "php.h"

/* From now on one call of so many is examined; what is there now is what the boot has left. */
void leaks_watch(zend_long every, bool settings);

/* A call is over that no PHP code has been told of. Whether somebody should call leaks_look(). */
bool leaks_due(void);

/* A call of this route is over, and nothing of it is left: adds what was found and not told
 * before. */
void leaks_look(zend_string *route, zval *found);

/* Where each call is examined: collects what a call has left in circles, and adds each class whose
 * destructors ran by that, once. In production they run in the call of somebody else. */
void leaks_collect(zval *found);

/* At the end of a request. */
void leaks_forget(void);

#endif
