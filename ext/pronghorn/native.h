/* The native codec, docs/reference/native-codec.md: frames in memory to PHP's values and back.
 * Knows nothing of the box that the memory belongs to. */
#ifndef PRONGHORN_NATIVE_H
#define PRONGHORN_NATIVE_H

#include "php.h"

#include "native_numbers.h"

/* What stands in front of a context and its body. */
typedef struct {
	uint8_t kind;
	uint8_t flags;
	uint16_t small;
	uint32_t call;
} native_envelope;

/* Whether such a message begins a call. */
static inline bool native_is_call(uint8_t kind)
{
	return kind == NATIVE_REQUEST || kind == NATIVE_SCRIPT || kind == NATIVE_RAW
		|| kind == NATIVE_JOB || kind == NATIVE_GRPC || kind == NATIVE_TCP;
}

/* Where the package keeps what a call is made of: offsets of properties of its classes, which it
 * may arrange as it likes. */
typedef struct {
	uint32_t id, deadline;           /* of every exchange */
	uint32_t request;                /* of one of HTTP, and of its request: */
	uint32_t started_at, method, remote, uri, host, path, query, protocol, fields, attributes, flags, count, payload;
	uint32_t raw_started_at, raw_payload;
	/* Of a gRPC one, and of its call: */
	uint32_t grpc_started_at, grpc_service, grpc_method, grpc_body, grpc_streams, grpc_call;
	uint32_t call_exchange, call_service, call_method, call_metadata, call_streams;
} native_slots;

/* The classes of these, and of what is made for them. */
typedef struct {
	const zend_class_entry *http, *request, *raw, *grpc, *grpc_call;
} native_classes;

/* Once for the process. */
void native_startup(void);

/* A property that is looked for, and where its offset is kept. */
typedef struct {
	uint32_t *offset;
	const zend_class_entry *class;
	const char *name;
} native_wanted;

/* NULL, or the name of the first one that is missing, or a static one. */
const char *native_find(const native_wanted *wanted, size_t count);

/* NULL, or the name of the property that is missing. */
const char *native_find_slots(native_slots *slots, const native_classes *classes);

/* The length of the frame that these 12 bytes begin with, 0 when they begin none. */
size_t native_frame_length(const unsigned char *bytes);

/* The length of the context of a frame with its one option, as the frame says it. */
size_t native_context_length(const unsigned char *frame);

/* The envelope of a whole frame with a native message in it; false: of another one. */
bool native_read_envelope(const unsigned char *frame, size_t length, native_envelope *envelope);

/* Makes an exchange of a whole frame, as a clone of one that is empty. NULL: it is for PHP code, or
 * its lengths leave the frame. */
typedef zend_object *native_reader(
	const native_slots *slots, zend_object *empty, const unsigned char *frame, size_t length, const native_envelope *envelope
);

/* An HTTP request, itself a clone of the empty one's, a raw call, and a gRPC call, which holds its
 * exchange as that holds it. */
native_reader native_read_request, native_read_raw, native_read_grpc;

/* The headers of a request by name: what follows the sixth string of its text, NULL when nothing
 * does. False: another number of them. */
bool native_read_headers(zval *into, const zend_string *fields, zend_string *host, uint32_t count);

/* Header fields of a reply, each with what has to be released. */
typedef struct {
	uint32_t count;
	uint32_t room;
	size_t bytes; /* of all names and values */
	struct native_field {
		zend_string *name;
		zend_string *value;
	} *fields;
} native_fields;

/* False: too many or too long, or an exception was thrown. Release them in any case. */
bool native_collect_fields(native_fields *fields, zend_array *headers);
void native_release_fields(native_fields *fields);

/* How long they are in a context, with their count and table. */
size_t native_fields_length(const native_fields *fields);

/* Both return where they ended. */
unsigned char *native_write_head(unsigned char *at, const native_envelope *envelope, size_t context, size_t body, bool more);
unsigned char *native_write_fields(unsigned char *at, const native_fields *fields);

/* What the time of a call was spent on, in microseconds: a message, so many bytes long. Returns where
 * it ended. */
#define NATIVE_SPENT_LENGTH (NATIVE_FRAME + NATIVE_ENVELOPE + 2 * sizeof(uint32_t))
unsigned char *native_write_spent(unsigned char *at, uint32_t call, uint32_t cpu, uint32_t blocked);

/* A control frame with this text, of less than 200 bytes. Returns its length. */
size_t native_write_control(unsigned char *at, const char *text, size_t length);

#endif
