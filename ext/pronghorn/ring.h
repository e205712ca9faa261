/* The worker's end of a box: memory shared with the server. docs/reference/ring.md says what both ends do, ring_layout.h
 * where everything lies. Knows nothing of PHP. */
#ifndef PRONGHORN_RING_H
#define PRONGHORN_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring_layout.h"

typedef struct {
	unsigned char *map;      /* the page of words, then each stream twice in a row; NULL: not attached */
	const unsigned char *page; /* of the server's thread: read only */
	int bell;                /* an eventfd */
	int server;              /* the pipe that the server holds the other end of: hung up means that it is gone */
	uint32_t put;            /* our own counts: what the words say could have been changed by a bug in this process */
	uint32_t taken;
	uint32_t rung;
} ring_t;

typedef enum {
	RING_OK,
	RING_INTERRUPTED, /* by a signal; PHP may have a handler for it */
	RING_GONE,        /* the server, or its counts make no sense */
} ring_outcome;

/* Maps what the server handed over and closes the first two descriptors. NULL, or what is wrong. */
const char *ring_attach(ring_t *ring, int memory, int page, int bell, int server);

/* Forgets everything without touching the server: in a forked child, which must not speak in its parent's name. */
void ring_forget(ring_t *ring);

/* How much there is to take, without waiting. */
size_t ring_there(const ring_t *ring);

/* Waits until there is something to take. */
ring_outcome ring_wait(ring_t *ring);

/* Copies out and takes; no more than there is. */
void ring_take(ring_t *ring, void *into, size_t length);

/* Puts all of it, waiting for room. `sent` counts up, so that an interrupted one can go on. */
ring_outcome ring_put(ring_t *ring, const char *bytes, size_t length, size_t *sent);

#endif
