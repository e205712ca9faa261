/* The worker's end of a box: memory shared with the server. docs/reference/ring.md says what both
 * ends do, ring_layout.h where everything lies. Knows nothing of PHP and of frames. */
#ifndef PRONGHORN_RING_H
#define PRONGHORN_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring_layout.h"

/* Where it makes a difference that a worker is killed, in the order of its life. Tests kill one at
 * each (e2e/tests/e2e/killed.rs), exactly there, and so with a build of their own: PRONGHORN_MARKS.
 * In any other one a mark is nothing, not even an instruction. */
#define RING_MARKS(mark) \
	mark(attached) /* the box is mapped, the server has not been told */ \
	mark(sleeping) /* the sleep is announced, whether or not it will come to it */ \
	mark(woken)    /* whoever ended the sleep has been, the word still says that we sleep */ \
	mark(seen)     /* there are bytes to take */ \
	mark(taking)   /* bytes were read, the server is not told */ \
	mark(taken)    /* it is */ \
	mark(claimed)  /* the call is this worker's */ \
	mark(written)  /* bytes were written, the server is not told */ \
	mark(put)      /* it is, and may sleep */ \
	mark(ringing)  /* it does sleep */ \
	mark(rung)     /* it has been woken */

#ifdef PRONGHORN_MARKS
#define RING_MARK_NUMBER(name) ring_mark_##name,
typedef enum { RING_MARKS(RING_MARK_NUMBER) } ring_mark_number;
void ring_mark(ring_mark_number mark);
#define RING_MARK(name) ring_mark(ring_mark_##name)
#else
#define RING_MARK(name) ((void) 0)
#endif

typedef struct {
	unsigned char *map;      /* the page of words, then each stream twice in a row; NULL: not attached */
	const unsigned char *page; /* of the server's thread: read only */
	int bell;                /* an eventfd */
	int server;              /* the pipe that the server holds the other end of: hung up means that it is gone */
	unsigned look_after;     /* milliseconds after which a sleeper looks whether the server still lives */
	uint64_t put;            /* our own counts: what the words say could have been changed by a bug in this process */
	uint64_t taken;
	uint32_t rung;
	bool owes_bell;
	uint32_t calls;          /* that were begun */
	int64_t answer_spin;     /* nanoseconds for which the next wait looks before it sleeps */
	unsigned sleeps_left;    /* answers that are not looked for, because one took long */
} ring_t;

typedef enum {
	RING_OK,
	RING_INTERRUPTED, /* by a signal, or the look every few seconds; PHP may have a handler to run */
	RING_GONE,        /* the server, or its counts make no sense */
} ring_outcome;

/* Once for the process. */
void ring_startup(void);

/* Maps what the server handed over and closes the first two descriptors. NULL, or what is wrong. */
const char *ring_attach(ring_t *ring, int memory, int page, int bell, int server, unsigned look_after);

/* Forgets everything without touching the server: in a forked child, which must not speak in its
 * parent's name. */
void ring_forget(ring_t *ring);

/* How much there is to take, without waiting: more than RING_DOWN when the counts make no sense. */
size_t ring_there(const ring_t *ring);

/* What is waited for next is the answer to a question, which often comes sooner than a sleep ends. */
void ring_expect_answer(ring_t *ring);

/* Waits until there are at least so many bytes to take, at most RING_DOWN. */
ring_outcome ring_wait(ring_t *ring, size_t bytes);

/* What there is, in one piece of memory whatever wraps. Valid until it is taken. */
const unsigned char *ring_peek(const ring_t *ring);

/* Begins a call whose bytes were taken. False: the server has taken it back, and nothing may be
 * done of it. */
bool ring_claim(ring_t *ring, uint32_t call);

/* Whether the server has taken a call back that lies there; it stays so. */
bool ring_is_taken_back(const ring_t *ring, uint32_t call);

/* Takes so many bytes, no more than there are. */
void ring_take(ring_t *ring, size_t bytes);

/* Waits for room for so many bytes, at most RING_UP. */
ring_outcome ring_wait_for_room(ring_t *ring, size_t bytes);

/* Where the next bytes go, in one piece. */
unsigned char *ring_room(const ring_t *ring);

/* How soon the server has to know what was put. What may wait does so only while something lies
 * there to be taken, and never beyond a sleep. */
typedef enum {
	RING_NOW,
	RING_WITH_REPLIES, /* a reply: it may wait while as many calls lie there as the server says */
	RING_WITH_REPLY,   /* what need not be known before the reply that follows */
	RING_WITH_NEXT,    /* what need not be known sooner than the answer to what lies there */
} ring_urgency;

/* Hands over what was written there, no more than there was room. */
void ring_put(ring_t *ring, size_t bytes, ring_urgency urgency);

/* Before a sleep and after it: where it is to be, in visits.c. Returns for how many nanoseconds at
 * the longest, 0: nothing was changed, and nothing is to be undone. NULL without that file. */
__attribute__((weak, visibility("hidden"))) int64_t visit_begin(const ring_t *ring);
__attribute__((weak, visibility("hidden"))) void visit_end(void);

#endif
