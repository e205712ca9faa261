#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "channel.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "deadline.h"
#include "spent.h"
#include "stack.h"

ring_t channel;

/* Of a message for the log. The server's records have no longer ones. */
#define LONGEST_MESSAGE (256u << 10)

static channel_interrupted *on_interruption;

/* The number of the call that was begun; 0: the server knows that this worker is free. */
static uint32_t begun;
/* Part of a message is out. */
static bool is_within;

/* A forked child would speak in its parent's name. */
static void in_child(void)
{
	spent_shows(NULL);
	ring_forget(&channel);
}

const char *channel_attach(const channel_descriptors *descriptors, unsigned look_after, channel_interrupted *interrupted)
{
	static bool forgets;

	if (!deadline_watch()) {
		return "the signal of the deadline can't be handled";
	}
	const char *wrong = ring_attach(
		&channel, descriptors->memory, descriptors->page, descriptors->bell, descriptors->input, look_after
	);
	if (wrong != NULL) {
		return wrong;
	}
	stack_publish(channel.map + RING_AT_STACK);
	spent_shows(channel.map + RING_AT_TIMED);
	fcntl(descriptors->input, F_SETFD, FD_CLOEXEC);
	fcntl(descriptors->output, F_SETFD, FD_CLOEXEC);
	on_interruption = interrupted;
	if (!forgets) {
		forgets = pthread_atfork(NULL, NULL, in_child) == 0;
	}
	return NULL;
}

static bool wait_for(ring_outcome (*wait)(ring_t *, size_t), size_t bytes, bool is_writing)
{
	ring_outcome outcome;
	while ((outcome = wait(&channel, bytes)) == RING_INTERRUPTED) {
		/* What was run may have forked, and the child has no channel. */
		if (on_interruption != NULL && (!on_interruption(is_writing) || channel.map == NULL)) {
			return false;
		}
	}
	return outcome == RING_OK;
}

/* ---- From the server ---- */

bool channel_wait(size_t bytes)
{
	return wait_for(ring_wait, bytes, false);
}

bool channel_pull(char *into, size_t length)
{
	while (length > 0) {
		/* At least a part of it that is worth a wake-up. */
		size_t piece = MIN(length, RING_DOWN / 4);
		if (!channel_wait(piece)) {
			return false;
		}
		memcpy(into, ring_peek(&channel), piece);
		ring_take(&channel, piece);
		into += piece;
		length -= piece;
	}
	return true;
}

size_t channel_look(native_envelope *envelope)
{
	size_t there;
	while ((there = ring_there(&channel)) >= NATIVE_FRAME_START && there <= RING_DOWN) {
		const unsigned char *frame = ring_peek(&channel);
		size_t length = native_frame_length(frame);
		if (length == 0 || length > there) {
			break;
		}
		if (!native_read_envelope(frame, length, envelope)) {
			*envelope = (native_envelope) {0};
			return length;
		}
		if (!native_is_call(envelope->kind) || !ring_is_taken_back(&channel, envelope->call)) {
			return length;
		}
		ring_take(&channel, length);
	}
	return 0;
}

/* ---- To the server ---- */

bool channel_put(const char *bytes, size_t length)
{
	while (length > 0) {
		size_t piece = MIN(length, RING_UP / 4);
		is_within = true;
		const bool has_room = wait_for(ring_wait_for_room, piece, true);
		is_within = false;
		if (!has_room) {
			return false;
		}
		memcpy(ring_room(&channel), bytes, piece);
		ring_put(&channel, piece, RING_NOW);
		bytes += piece;
		length -= piece;
	}
	return true;
}

/* How soon the server has to know of a message; `last` is said of the last frame of a reply. */
static ring_urgency urgency_of(uint8_t kind, bool last)
{
	return kind == NATIVE_FREE ? RING_WITH_NEXT : kind == NATIVE_ROUTE ? RING_WITH_REPLY : kind == NATIVE_REPLY && last ? RING_WITH_REPLIES : RING_NOW;
}

/* Whether a message is the end of a reply. */
static bool ends_reply(uint8_t kind, bool more)
{
	return !more && (kind == NATIVE_REPLY || kind == NATIVE_CHUNK || kind == NATIVE_ERROR);
}

unsigned char *channel_begin(const native_envelope *envelope, size_t context, size_t body, bool more)
{
	/* Goes out with it: one step, and at most one bell. */
	spent_t spent;
	const bool tells = ends_reply(envelope->kind, more) && spent_ends(envelope->call, &spent);
	const size_t head = NATIVE_FRAME + NATIVE_ENVELOPE + context + (tells ? NATIVE_SPENT_LENGTH : 0);
	if (!wait_for(ring_wait_for_room, body <= RING_UP - head ? head + body : head, true)) {
		return NULL;
	}
	unsigned char *at = ring_room(&channel);
	if (tells) {
		at = native_write_spent(at, envelope->call, spent.cpu, spent.blocked);
	}
	return native_write_head(at, envelope, context, body, more);
}

uint32_t channel_call(void)
{
	return begun;
}

void channel_begun(uint32_t call)
{
	begun = call;
}

bool channel_end(const native_envelope *envelope, const unsigned char *at, const char *body, size_t length, bool more)
{
	unsigned char *start = ring_room(&channel);
	size_t head = (size_t) (at - start);
	bool at_once = length <= RING_UP - head;
	if (at_once && length > 0) {
		memcpy(start + head, body, length);
		head += length;
	}
	if (ends_reply(envelope->kind, more)) {
		begun = envelope->flags & NATIVE_BUSY ? envelope->call : 0;
	} else if (envelope->kind == NATIVE_FREE) {
		begun = 0;
	}
	ring_put(&channel, head, urgency_of(envelope->kind, at_once && !more));
	return at_once || channel_put(body, length);
}

bool channel_send(native_envelope envelope)
{
	unsigned char *at = channel_begin(&envelope, 0, 0, false);
	return at != NULL && channel_end(&envelope, at, NULL, 0, false);
}

bool channel_log(uint32_t call, const char *message, bool by_php)
{
	const uint8_t flags = NATIVE_IGNORABLE | (by_php ? NATIVE_BY_PHP : 0);
	const native_envelope envelope = {.kind = NATIVE_MESSAGE, .flags = flags, .call = call};
	const size_t length = MIN(strlen(message), LONGEST_MESSAGE);
	unsigned char *at = channel.map == NULL || is_within ? NULL : channel_begin(&envelope, length, 0, false);
	if (at == NULL) {
		return false;
	}
	memcpy(at, message, length);
	return channel_end(&envelope, at + length, NULL, 0, false);
}
