/* What the time of a call is spent on, by the clocks of the thread that runs it. Two looks at a
 * clock, and only for a call whose server wants to know. Knows nothing of PHP. */
#ifndef PRONGHORN_SPENT_H
#define PRONGHORN_SPENT_H

#include <stdbool.h>
#include <stdint.h>

/* In microseconds; what does not fit is the most that does. */
typedef struct {
	uint32_t cpu;
	uint32_t blocked; /* by a sleep, a lock, a peer, or for want of a processor */
} spent_t;

/* Where the server finds what it asks for while the call runs: two words of 64 bits, the call and
 * what the thread had taken of a processor when it began. NULL: nowhere. */
void spent_shows(unsigned char *words);

/* A call begins. */
void spent_begins(uint32_t call, bool is_wanted);

/* It ends. False: nobody wants to know, or it is another call, or was asked before. */
bool spent_ends(uint32_t call, spent_t *spent);

#endif
