#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "reply.h"

#include "channel.h"
#include "deadline.h"

/* A reply up to this length goes out in one frame with its head, so that the client is told how
 * long it is. */
#define KEPT 65536
/* The same in development, where the server adds to pages, or replaces them. */
#define KEPT_IN_DEVELOPMENT (4u << 20)
/* The most of a reply's head. Clients take less. */
#define LONGEST_HEAD (256u << 10)

/* With threads in PHP there is one all the same: a process has one channel. */
static struct {
	uint32_t call;
	bool begun; /* its head was sent */
	bool ended;
	bool gone; /* nobody reads it */
	bool too_long;
	size_t kept; /* so much of its body waits for more, or for its end */
	bool (*first)(void); /* sends what comes before the body */
	unsigned status; /* 0: there is no head yet */
	uint32_t fields;
	buffer_t table; /* of pairs of lengths */
	buffer_t text;  /* names and values */
	buffer_t body;  /* of which nothing was sent */
} reply;

char *buffer_room(buffer_t *buffer, size_t more)
{
	size_t wanted = buffer->used + more;
	if (wanted > buffer->room) {
		buffer->room = MAX(wanted, 2 * buffer->room);
		buffer->bytes = perealloc(buffer->bytes, buffer->room, true);
	}
	return buffer->bytes + buffer->used;
}

static void add(buffer_t *buffer, const void *from, size_t length)
{
	if (length > 0) {
		memcpy(buffer_room(buffer, length), from, length);
		buffer->used += length;
	}
}

void buffer_clear(buffer_t *buffer)
{
	buffer->used = 0;
	if (buffer->room > BUFFER_LARGE) {
		pefree(buffer->bytes, true);
		*buffer = (buffer_t) {0};
	}
}

/* What has no bytes may be nowhere. */
static unsigned char *copy(unsigned char *at, const void *from, size_t length)
{
	if (length > 0) {
		memcpy(at, from, length);
	}
	return at + length;
}

/* An envelope, for a reply its fields, and a body. */
static void send_message(uint8_t kind, uint8_t flags, const char *body, size_t length, bool more)
{
	const bool has_head = kind == NATIVE_REPLY;
	const native_envelope envelope = {
		.kind = kind, .flags = flags, .small = has_head ? (uint16_t) reply.status : 0, .call = reply.call,
	};
	size_t fields = has_head ? sizeof reply.fields + reply.table.used + reply.text.used : 0;
	unsigned char *at = channel_begin(&envelope, fields, length, more);
	if (at != NULL && has_head) {
		at = copy(at, &reply.fields, sizeof reply.fields);
		at = copy(at, reply.table.bytes, reply.table.used);
		at = copy(at, reply.text.bytes, reply.text.used);
	}
	/* Where the server is gone, the wait for the next call ends as well. */
	reply.gone |= at == NULL || !channel_end(&envelope, at, body, length, more);
}

/* Whether the server says that nobody reads the reply to this call. A cancel of an earlier one is
 * void. */
static bool client_has_left(void)
{
	native_envelope envelope;
	size_t length;
	while (!reply.gone && (length = channel_look(&envelope)) > 0 && envelope.kind == NATIVE_CANCEL) {
		ring_take(&channel, length);
		reply.gone = envelope.call == reply.call;
	}
	return reply.gone;
}

void reply_begin(uint32_t call)
{
	reply.call = call;
	reply.status = 0;
	reply.fields = 0;
	reply.begun = reply.ended = reply.gone = reply.too_long = false;
	reply.kept = KEPT;
	buffer_clear(&reply.table);
	buffer_clear(&reply.text);
	reply.body.used = 0;
}

void reply_begin_once(uint32_t call, bool has_begun)
{
	if (reply.call != call) {
		reply_begin(call);
	}
	if (has_begun && !reply.begun) {
		reply.begun = true;
		reply.status = 200;
	}
}

void reply_keep_whole(void)
{
	reply.kept = KEPT_IN_DEVELOPMENT;
}

bool reply_empty(unsigned status)
{
	if (reply.begun || reply.ended) {
		return false;
	}
	reply.status = status;
	reply.fields = 0;
	reply.table.used = reply.text.used = reply.body.used = 0;
	return true;
}

void reply_add_field(const char *name, size_t name_length, const char *value, size_t value_length)
{
	if (reply.table.used + reply.text.used + name_length + value_length > LONGEST_HEAD) {
		reply.too_long = true;
		return;
	}
	const uint32_t lengths[] = {(uint32_t) name_length, (uint32_t) value_length};
	add(&reply.table, lengths, sizeof lengths);
	add(&reply.text, name, name_length);
	add(&reply.text, value, value_length);
	reply.fields++;
}

void reply_set_status(unsigned status)
{
	reply.status = status;
	if (reply.too_long) {
		fprintf(stderr, "pronghorn: the headers of a reply have more than %u KB, the client gets 500\n", LONGEST_HEAD >> 10);
		reply.status = 500;
		reply.fields = 0;
		reply.table.used = reply.text.used = 0;
	}
}

void reply_send_first(bool (*send)(void))
{
	reply.first = send;
}

bool reply_has_first(void)
{
	return reply.first != NULL;
}

bool reply_has_head(void)
{
	return reply.status != 0;
}

/* The head if it was not sent, and what is kept of the body. */
static void send_kept(uint8_t flags, bool more)
{
	if (!reply.begun) {
		send_message(NATIVE_REPLY, flags, reply.body.bytes, reply.body.used, more);
		reply.begun = true;
	} else if (reply.body.used > 0 || !more) {
		send_message(NATIVE_CHUNK, flags, reply.body.bytes, reply.body.used, more);
	}
	reply.body.used = 0;
}

bool reply_write(const char *from, size_t length)
{
	if (reply.ended || channel.map == NULL) {
		return true;
	}
	while (reply.body.used <= reply.kept && length > reply.kept - reply.body.used) {
		size_t piece = reply.kept - reply.body.used;
		add(&reply.body, from, piece);
		from += piece;
		length -= piece;
		if (!reply_flush()) {
			return false;
		}
		if (reply.body.used > 0) {
			break; /* nothing goes out now */
		}
	}
	add(&reply.body, from, length);
	return true;
}

bool reply_flush(void)
{
	if (reply.ended || channel.map == NULL || !(reply_has_head() || reply_has_first())) {
		return true;
	}
	if (client_has_left()) {
		reply.body.used = 0;
		return false;
	}
	if (reply_has_first()) {
		if (!reply.first()) {
			return true;
		}
		reply.first = NULL;
		reply.begun = true;
		reply.status = 200;
	}
	send_kept(0, true);
	return true;
}

bool reply_end(uint8_t flags)
{
	if (reply.ended) {
		return false;
	}
	reply.ended = true;
	deadline_ends(flags & NATIVE_BUSY ? reply.call : 0);
	if (channel.map != NULL) {
		if (!reply_has_head()) {
			reply_set_status(500);
		}
		send_kept(flags, false);
	}
	return true;
}

bool reply_has_begun(void)
{
	return reply.begun;
}

bool reply_has_ended(void)
{
	return reply.ended;
}

bool reply_has_body(void)
{
	return reply.body.used > 0;
}

const char *reply_take(size_t *length)
{
	*length = reply.body.used;
	reply.body.used = 0;
	return reply.body.bytes;
}

void reply_forget(void)
{
	reply.call = 0;
}
