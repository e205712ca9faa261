/* The channel of this process to the server: messages of the native codec in its ring. What the
 * loop of handlers (pronghorn.c) and the loop of scripts (classic_call.c) both do with it. A
 * process has one channel, and one of the two loops.
 *
 * Where a function returns false, the server is gone or an interruption has ended the wait. */
#ifndef PRONGHORN_CHANNEL_H
#define PRONGHORN_CHANNEL_H

#include "native.h"
#include "ring.h"

/* Its ring; `map` is NULL where it is not attached, and in a forked child. */
extern ring_t channel;

/* Descriptors that the server has handed over. */
typedef struct {
	int memory, page, bell; /* of the box and its thread */
	int input, output;      /* the pipes, to read from and to write to */
} channel_descriptors;

/* Is called when a wait was interrupted, by a signal or by the look every few seconds. False ends
 * the wait; inside of a message that is being written nothing can. */
typedef bool channel_interrupted(bool is_writing);

/* Maps the box, and hides the descriptors from programs that this process starts. NULL, or what is
 * wrong. Without `interrupted`, waits go on. */
const char *channel_attach(const channel_descriptors *descriptors, unsigned look_after, channel_interrupted *interrupted);

/* Waits until there are so many bytes to take, at most RING_DOWN. */
bool channel_wait(size_t bytes);

/* Takes so many bytes, however many. */
bool channel_pull(char *into, size_t length);

/* The next frame, if it is there as a whole, and its envelope, of kind 0 where it is no native
 * message. Calls that the server has taken back are passed over. Does not wait. 0: there is none,
 * or what is there is no frame. */
size_t channel_look(native_envelope *envelope);

/* Sends bytes, however many. */
bool channel_put(const char *bytes, size_t length);

/* Begins a message of which so much follows the envelope: waits for room, for all of it where it
 * fits. Before the end of a reply stands what its call's time was spent on, if that is wanted.
 * Returns where the rest of its context goes, which channel_end() is told the end of; NULL: the
 * server is gone. */
unsigned char *channel_begin(const native_envelope *envelope, size_t context, size_t body, bool more);
bool channel_end(const native_envelope *envelope, const unsigned char *at, const char *body, size_t length, bool more);

/* The number of the call that was begun; 0: the server has been told that this worker is free again. */
uint32_t channel_call(void);

/* A call was begun. */
void channel_begun(uint32_t call);

/* Sends a message that is an envelope and nothing else. */
bool channel_send(native_envelope envelope);

/* Sends what is written to PHP's log during this call, by PHP itself or by the application. False
 * also where a part of another message is out: a signal's handler has said it. */
bool channel_log(uint32_t call, const char *message, bool by_php);

#endif
