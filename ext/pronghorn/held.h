/* What this process holds that processes forked from it would share, and which call of PHP it has
 * it from: what is open, and what belongs to one process alone. Looks only in one that is to boot
 * an application and to be forked. */
#ifndef PRONGHORN_HELD_H
#define PRONGHORN_HELD_H

#include <stdbool.h>
#include <stddef.h>

/* Before any script is compiled: from now on each call of a function of PHP is looked at. */
void held_startup(void);

/* What is open by now is PHP's own, and the server's. `over` is called, and no call is looked at
 * any more, when the server has closed its end of `control`: it wants this process as something
 * else. */
void held_begin(int control, void (*over)(void));

/* Whether something is open that two processes must not share; `text` gets what, and by which
 * calls. */
bool held_any(char *text, size_t room);

/* Whether it counts from now on what a call gets that belongs to one process. That of a request does
 * not: its end takes it back. */
void held_count_own(bool counts);

/* Whether the application was given what belongs to one process, and may keep it: its number, or
 * random numbers. `text` gets by which call. */
bool held_own(char *text, size_t room);

/* Gives a descriptor another file. Whether programs inherit it stays as it is. */
void held_replace(int descriptor, int by);

/* In a worker: files that are only appended to are opened anew, because a lock of one belongs to
 * whoever opened it. */
void held_reopen(void);

/* No call is looked at any more. */
void held_end(void);

#endif
