#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "classic_call.h"

#include <errno.h>
#include <unistd.h>

#include "php.h"
#include "php_ini.h"

#include "channel.h"
#include "deadline.h"
#include "reply.h"
#include "spent.h"

/* Milliseconds after which a worker that waits looks whether the server still lives. */
#define LOOK_AFTER 5000
/* The first frame of the server has some 30 bytes. */
#define GREETING 256

/* The call at hand. Its context, a NUL, its body, a NUL. With threads in PHP there is one all the
 * same: this server API starts none. */
static call_t call;
static buffer_t bytes;
static size_t variables_room;

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

/* ---- From the server ---- */

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
	buffer_clear(&bytes);
	if (!native_read_envelope(head, length, &envelope)) {
		/* A control frame. There is one. */
		if (length > GREETING) {
			leave_at_once("the server sent a frame that makes no sense");
		}
		expect_server(channel_pull(buffer_room(&bytes, length), length));
		return memmem(bytes.bytes, length, "\"stop\":true", sizeof "\"stop\":true" - 1) != NULL ? STOP : OTHER;
	}
	size_t context = native_context_length(head);
	if (context < NATIVE_ENVELOPE || context > length - NATIVE_FRAME) {
		leave_at_once("the server sent a frame whose lengths leave it");
	}
	size_t body = length - NATIVE_FRAME - context;
	char *start = buffer_room(&bytes, context + 1 + body + 1);
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
				reply_begin(call.number);
				if (call.development) {
					reply_keep_whole();
				}
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

bool call_end(bool busy)
{
	bool ends = reply_end(busy ? NATIVE_BUSY : 0);
	if (ends) {
		deadline_begins_work_left();
	}
	return ends;
}

bool call_log(const call_t *of, const char *message, bool by_php)
{
	return channel_log(of->number, message, by_php);
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
	/* Proves that this process has the pool's settings: the last option of its command line. */
	char *settings = NULL;
	const bool is_given = cfg_get_string("pronghorn.settings", &settings) == SUCCESS && settings != NULL;
	int text = snprintf(
		said, sizeof said, "{\"pid\":%ld,\"codec\":\"native\",\"version\":1,\"kinds\":[\"script\"],\"sdk\":\"extension %s\",\"php\":\"%s\",\"ring\":true,"
		"\"settings\":\"%.16s\",\"deadline_signal\":%d}", (long) getpid(), version, PHP_VERSION, is_given ? settings : "", DEADLINE_SIGNAL
	);
	size_t all = native_write_control((unsigned char *) announcement, said, (size_t) text);
	return write(descriptors.output, announcement, all) == (ssize_t) all ? NULL : "the server is gone";
}
