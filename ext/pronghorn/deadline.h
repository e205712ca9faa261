/* Ends a call whose time is up: a signal of the server becomes an exception at the next line that
 * PHP runs. */
#ifndef PRONGHORN_DEADLINE_H
#define PRONGHORN_DEADLINE_H

#include "php.h"

/* Of those that nobody uses: PHP with threads has the first real-time signal, which is 34 or 35. */
#define DEADLINE_SIGNAL 44

/* Once for the process, with the class of what is thrown. */
void deadline_startup(zend_class_entry *exceeded);

/* Once for the process: this thread is the one that runs calls. False: the signal can't be
 * handled. */
bool deadline_watch(void);

/* Between these two the signal that names the call ends it. A call that has work left after its
 * reply is named at the end, any other is 0. */
void deadline_begins(uint32_t call);
void deadline_ends(uint32_t with_work_left);

/* That work begins, and ends by deadline_ends(0). False: there is none. It goes by another number,
 * the complement: a signal for the call may still be on its way. */
bool deadline_begins_work_left(void);

/* How long ago the call that has work left had its reply, in units of 10 microseconds, at least
 * one; asked again, or of another call, 0. */
uint16_t deadline_rest(uint32_t call);

#endif
