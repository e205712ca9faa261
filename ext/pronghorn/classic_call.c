#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "classic_call.h"

#include <errno.h>
#include <unistd.h>

#include "channel.h"
#include "deadline.h"
#include "spent.h"

/* A reply up to this length goes out in one frame with its head, so that the client is told how
 * long it is. */
#define KEPT 65536
/* The most of a reply's head. Clients take less. */
#define LONGEST_HEAD (256u << 10)
/* A buffer that grew beyond this is given back after its call. */
#define LARGE (1u << 20)
/* Milliseconds after which a worker that waits looks whether the server still lives. */
#define LOOK_AFTER 5000
/* The first frame of the server has some 30 bytes. */
#define GREETING 256

/* Memory of the process that grows as it is needed. */
typedef struct {
	char *bytes;
	size_t used;
	size_t room;
} buffer_t;

/* The call at hand. Its context, a NUL, its body, a NUL. With threads in PHP there is one all the
 * same: this server API starts none. */
static call_t call;
static buffer_t bytes;
static size_t variables_room;

/* The reply to it. */
static struct {
	bool begun; /* its head was sent */
	bool ended;
	bool gone; /* nobody reads it */
	bool too_long;
	unsigned status; /* 0: there is no head yet */
	uint32_t fields;
	buffer_t table; /* of pairs of lengths */
	buffer_t text;  /* names and values */
	buffer_t body;  /* of which nothing was sent */
} reply;

static char *room_for(buffer_t *buffer, size_t more)
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
		memcpy(room_for(buffer, length), from, length);
		buffer->used += length;
	}
}

static void clear(buffer_t *buffer)
{
	buffer->used = 0;
	if (buffer->room > LARGE) {
		pefree(buffer->bytes, true);
		*buffer = (buffer_t) {0};
	}
}

static void leave_at_once(const char *why)
{
	fprintf(stderr, "pronghorn: this worker ends: %s\n", why);
	_exit(1);
}

static void expect_server(bool is_there)
{
	if (!is_there) {
		leave_at_once("the server is gone");
	}
}

/* ---- To the server ---- */

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
		.kind = kind, .flags = flags, .small = has_head ? (uint16_t) reply.status : 0, .call = call.number,
	};
	size_t fields = has_head ? sizeof reply.fields + reply.table.used + reply.text.used : 0;
	unsigned char *at = channel_begin(&envelope, fields, length, more);
	if (at != NULL && has_head) {
		at = copy(at, &reply.fields, sizeof reply.fields);
		at = copy(at, reply.table.bytes, reply.table.used);
		at = copy(at, reply.text.bytes, reply.text.used);
	}
	expect_server(at != NULL && channel_end(&envelope, at, body, length, more));
}

/* ---- From the server ---- */

/* Whether the server says that nobody reads the reply to this call. A cancel of an earlier one is
 * void. */
static bool client_has_left(void)
{
	native_envelope envelope;
	size_t length;
	while (!reply.gone && (length = channel_look(&envelope)) > 0 && envelope.kind == NATIVE_CANCEL) {
		ring_take(&channel, length);
		reply.gone = envelope.call == call.number;
	}
	return reply.gone;
}

/* A length as FastCGI writes it: a byte, or four with the highest bit set. False: it leaves the
 * block. */
static bool read_length(const char **at, const char *end, size_t *length)
{
	const unsigned char *byte = (const unsigned char *) *at;
	size_t left = (size_t) (end - *at);
	if (left == 0 || (*byte >= 0x80 && left < 4)) {
		return false;
	}
	if (*byte < 0x80) {
		*length = *byte;
		*at += 1;
	} else {
		*length = (size_t) (*byte & 0x7F) << 24 | (size_t) byte[1] << 16 | (size_t) byte[2] << 8 | byte[3];
		*at += 4;
	}
	return true;
}

static bool read_variables(char *at, char *end)
{
	call.count = 0;
	for (const char *next = at; next < end;) {
		size_t name, value;
		if (!read_length(&next, end, &name) || !read_length(&next, end, &value) || name > (size_t) (end - next)
			|| value > (size_t) (end - next) - name) {
			return false;
		}
		if (call.count == variables_room) {
			variables_room = variables_room == 0 ? 64 : 2 * variables_room;
			call.variables = perealloc(call.variables, variables_room * sizeof *call.variables, true);
		}
		call.variables[call.count++] = (call_variable) {
			.name = next, .name_length = name, .value = at + (next - at) + name, .value_length = value,
		};
		next += name + value;
	}
	/* Behind a value begin the lengths of the next variable, which were read. */
	for (size_t i = 0; i < call.count; i++) {
		call.variables[i].value[call.variables[i].value_length] = '\0';
	}
	return true;
}

/* A frame of the server. */
enum taken { CALL, OTHER, STOP };

/* Takes the next frame, which begins the stream and has this length. */
static enum taken take(size_t length)
{
	unsigned char head[NATIVE_FRAME + NATIVE_ENVELOPE];
	native_envelope envelope;
	if (!channel_wait(MIN(length, sizeof head))) {
		return STOP;
	}
	memcpy(head, ring_peek(&channel), MIN(length, sizeof head));
	clear(&bytes);
	if (!native_read_envelope(head, length, &envelope)) {
		/* A control frame. There is one. */
		if (length > GREETING) {
			leave_at_once("the server sent a frame that makes no sense");
		}
		expect_server(channel_pull(room_for(&bytes, length), length));
		return memmem(bytes.bytes, length, "\"stop\":true", sizeof "\"stop\":true" - 1) != NULL ? STOP : OTHER;
	}
	size_t context = native_context_length(head);
	if (context < NATIVE_ENVELOPE || context > length - NATIVE_FRAME) {
		leave_at_once("the server sent a frame whose lengths leave it");
	}
	size_t body = length - NATIVE_FRAME - context;
	char *start = room_for(&bytes, context + 1 + body + 1);
	if (length <= RING_DOWN) {
		if (!channel_wait(length)) {
			return STOP;
		}
		const unsigned char *whole = ring_peek(&channel) + NATIVE_FRAME;
		memcpy(start, whole, context);
		memcpy(start + context + 1, whole + context, body);
		ring_take(&channel, length);
	} else {
		ring_take(&channel, NATIVE_FRAME);
		expect_server(channel_pull(start, context) && channel_pull(start + context + 1, body));
	}
	switch (envelope.kind) {
		case NATIVE_SCRIPT:
			if (!ring_claim(&channel, envelope.call)) {
				return OTHER; /* taken back */
			}
			break;
		case NATIVE_PING:
			expect_server(channel_send((native_envelope) {.kind = NATIVE_PONG, .call = envelope.call}));
			return OTHER;
		case NATIVE_CANCEL:
			return OTHER; /* of a call that had ended */
		default:
			if (envelope.flags & NATIVE_IGNORABLE) {
				return OTHER;
			}
			leave_at_once("the server sent a message that this extension does not know: install the same release of both");
	}
	call.number = envelope.call;
	call.body = start + context + 1;
	call.body_length = body;
	call.body_is_file = (envelope.flags & NATIVE_BODY_FILE) != 0;
	call.development = (envelope.flags & NATIVE_DEVELOPMENT) != 0;
	call.timed = (envelope.flags & NATIVE_TIMED) != 0;
	start[context] = start[context + 1 + body] = '\0';
	if (context < NATIVE_CALL_HEAD || !read_variables(start + NATIVE_CALL_HEAD, start + context)) {
		leave_at_once("the server sent a call whose lengths leave its frame");
	}
	return CALL;
}

const call_t *call_next(void)
{
	reply.status = 0;
	reply.fields = 0;
	reply.begun = reply.ended = reply.gone = reply.too_long = false;
	clear(&reply.table);
	clear(&reply.text);
	reply.body.used = 0;
	for (;;) {
		if (channel.map == NULL || !channel_wait(NATIVE_FRAME_START)) {
			return NULL;
		}
		size_t length = native_frame_length(ring_peek(&channel));
		if (length == 0) {
			leave_at_once("the server sent what is no frame");
		}
		switch (take(length)) {
			case CALL:
				deadline_begins(call.number);
				spent_begins(call.number, call.timed);
				return &call;
			case STOP:
				return NULL;
			case OTHER:
				break;
		}
	}
}

char *call_value(const call_t *of, const char *name, size_t length)
{
	for (size_t i = 0; i < of->count; i++) {
		if (of->variables[i].name_length == length && memcmp(of->variables[i].name, name, length) == 0) {
			return of->variables[i].value;
		}
	}
	return NULL;
}

/* ---- The reply ---- */

void call_add_field(const char *name, size_t name_length, const char *value, size_t value_length)
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

void call_set_status(unsigned status)
{
	reply.status = status;
	if (reply.too_long) {
		fprintf(stderr, "pronghorn: the headers of a reply have more than %u KB, the client gets 500\n", LONGEST_HEAD >> 10);
		reply.status = 500;
		reply.fields = 0;
		reply.table.used = reply.text.used = 0;
	}
}

bool call_has_head(void)
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

bool call_write(const char *from, size_t length)
{
	if (reply.ended || channel.map == NULL) {
		return true;
	}
	while (length > KEPT - reply.body.used) {
		size_t piece = KEPT - reply.body.used;
		add(&reply.body, from, piece);
		from += piece;
		length -= piece;
		if (!call_flush()) {
			return false;
		}
	}
	add(&reply.body, from, length);
	return true;
}

bool call_flush(void)
{
	if (reply.ended || channel.map == NULL || !call_has_head()) {
		return true;
	}
	if (client_has_left()) {
		reply.body.used = 0;
		return false;
	}
	send_kept(0, true);
	return true;
}

bool call_end(bool busy)
{
	if (reply.ended) {
		return false;
	}
	reply.ended = true;
	deadline_ends(busy ? call.number : 0);
	if (channel.map != NULL) {
		if (!call_has_head()) {
			call_set_status(500);
		}
		send_kept(busy ? NATIVE_BUSY : 0, false);
	}
	deadline_begins_work_left();
	return true;
}

void call_free(void)
{
	deadline_ends(0);
	if (channel.map != NULL) {
		expect_server(channel_send((native_envelope) {
			.kind = NATIVE_FREE, .small = deadline_rest(call.number), .call = call.number,
		}));
	}
}

/* ---- The start ---- */

static bool read_all(int from, char *into, size_t length)
{
	while (length > 0) {
		ssize_t got = read(from, into, length);
		if (got == 0 || (got < 0 && errno != EINTR)) {
			return false;
		}
		into += MAX(got, 0);
		length -= (size_t) MAX(got, 0);
	}
	return true;
}

/* Descriptors with commas between them. */
static bool read_numbers(const char *text, int *into, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char *end;
		long number = text == NULL ? -1 : strtol(text, &end, 10);
		if (number < 0 || number > INT_MAX || end == text || *end != (i + 1 < count ? ',' : '\0')) {
			return false;
		}
		into[i] = (int) number;
		text = end + 1;
	}
	return true;
}

const char *call_read_offer(const char *pipes, const char *box, call_offer *offer)
{
	if (!read_numbers(pipes, offer->pipes, 2)) {
		return "it was not started by the server";
	}
	if (!read_numbers(box, offer->box, 3)) {
		return "the server offers no shared memory";
	}
	return NULL;
}

const char *call_greet(const call_offer *offer)
{
	char greeting[GREETING];
	if (!read_all(offer->pipes[0], greeting, NATIVE_FRAME_START)) {
		return "the server is gone";
	}
	size_t length = native_frame_length((const unsigned char *) greeting);
	if (length < NATIVE_FRAME_START || length > sizeof greeting || !read_all(offer->pipes[0], greeting, length - NATIVE_FRAME_START)) {
		return "the server began with something else than a control frame";
	}
	return NULL;
}

const char *call_attach(const call_offer *offer, const char *version)
{
	const channel_descriptors descriptors = {
		.memory = offer->box[0], .page = offer->box[1], .bell = offer->box[2],
		.input = offer->pipes[0], .output = offer->pipes[1],
	};
	const char *wrong = channel_attach(&descriptors, LOOK_AFTER, NULL);
	if (wrong != NULL) {
		return wrong;
	}
	char said[GREETING], announcement[GREETING];
	int text = snprintf(
		said, sizeof said, "{\"pid\":%ld,\"codec\":\"native\",\"version\":1,\"kinds\":[\"script\"],\"sdk\":\"extension %s\",\"php\":\"%s\",\"ring\":true,"
		"\"deadline_signal\":%d}", (long) getpid(), version, PHP_VERSION, DEADLINE_SIGNAL
	);
	size_t all = native_write_control((unsigned char *) announcement, said, (size_t) text);
	return write(descriptors.output, announcement, all) == (ssize_t) all ? NULL : "the server is gone";
}
