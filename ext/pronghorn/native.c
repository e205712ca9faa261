/* Numbers are little-endian and may lie anywhere: memcpy is one instruction. Lengths come from
 * memory that both sides write: each is read once and compared with what is left before it is
 * used. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "native.h"

#include "clock.h"
#include "zend_smart_str.h"

#ifdef WORDS_BIGENDIAN
#error "The native codec is little-endian, and this code copies numbers as they are."
#endif

/* Where a frame's stream bits are, and the one that says that more frames of this reply follow. */
#define STREAM 10
#define MORE 1
/* The first two bytes of every native frame: version 1 and four words of header; the flag of the
 * codec. */
#define VERSION_AND_WORDS 0x14
#define NATIVE_FLAG 0x02
/* The same without an option, for control frames; their flags say that they are JSON. */
#define VERSION_AND_HEAD 0x13
#define CONTROL_FLAGS 0x09
/* Fields of a reply that are collected without an allocation. */
#define FEW 32

static uint32_t crc_table[256];

static const char *const header_names[] = {
	"accept", "accept-charset", "accept-encoding", "accept-language", "access-control-request-headers",
	"access-control-request-method", "authorization", "cache-control", "connection", "content-encoding", "content-length",
	"content-type", "cookie", "date", "dnt", "expect", "forwarded", "from", "host", "idempotency-key", "if-match",
	"if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive", "max-forwards", "origin", "pragma",
	"priority", "proxy-authorization", "range", "referer", "sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform",
	"sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-user", "te", "traceparent", "tracestate", "trailer",
	"transfer-encoding", "upgrade", "upgrade-insecure-requests", "user-agent", "via", "x-correlation-id", "x-csrf-token",
	"x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-inertia", "x-real-ip", "x-request-id",
	"x-requested-with", "x-xsrf-token",
};
static const char *const methods[] = {"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"};

enum { PROTOCOL_10, PROTOCOL_11, PROTOCOL_2, PROTOCOL_3, PROTOCOLS };
static const char *const protocols[PROTOCOLS] = {"HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3.0"};

/* Strings that come again and again, made once: their place follows from length, first and last
 * letter. */
#define KNOWN 512
static zend_string *known[KNOWN];
static zend_string *known_protocols[PROTOCOLS];

static uint32_t place_of(const char *text, size_t length)
{
	return (uint32_t) (length * 37 + (unsigned char) text[0] * 5 + (unsigned char) text[length - 1] * 17
		+ (unsigned char) text[length / 2]) % KNOWN;
}

static void make_known(const char *text)
{
	size_t length = strlen(text);
	uint32_t at = place_of(text, length);
	while (known[at] != NULL) {
		at = (at + 1) % KNOWN;
	}
	known[at] = zend_string_init_interned(text, length, true);
}

void native_startup(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t sum = byte;
		for (int bit = 0; bit < 8; bit++) {
			sum = sum & 1 ? 0xEDB88320u ^ (sum >> 1) : sum >> 1;
		}
		crc_table[byte] = sum;
	}
	for (size_t i = 0; i < sizeof header_names / sizeof *header_names; i++) {
		make_known(header_names[i]);
	}
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		make_known(methods[i]);
	}
	for (size_t i = 0; i < PROTOCOLS; i++) {
		known_protocols[i] = zend_string_init_interned(protocols[i], strlen(protocols[i]), true);
	}
}

/* A string that comes again and again, or a new one. */
static zend_string *string_of(const char *text, size_t length)
{
	if (length <= 1) {
		return zend_string_init_fast(text, length);
	}
	for (uint32_t at = place_of(text, length); known[at] != NULL; at = (at + 1) % KNOWN) {
		if (ZSTR_LEN(known[at]) == length && memcmp(ZSTR_VAL(known[at]), text, length) == 0) {
			return known[at];
		}
	}
	return zend_string_init(text, length, false);
}

static uint16_t read_u16(const unsigned char *at)
{
	uint16_t number;
	memcpy(&number, at, sizeof number);
	return number;
}

static uint32_t read_u32(const unsigned char *at)
{
	uint32_t number;
	memcpy(&number, at, sizeof number);
	return number;
}

static uint64_t read_u64(const unsigned char *at)
{
	uint64_t number;
	memcpy(&number, at, sizeof number);
	return number;
}

static unsigned char *write_u16(unsigned char *at, uint16_t number)
{
	memcpy(at, &number, sizeof number);
	return at + sizeof number;
}

static unsigned char *write_u32(unsigned char *at, uint32_t number)
{
	memcpy(at, &number, sizeof number);
	return at + sizeof number;
}

static unsigned char *write_string(unsigned char *at, const zend_string *string)
{
	memcpy(at, ZSTR_VAL(string), ZSTR_LEN(string));
	return at + ZSTR_LEN(string);
}

/* The check sum of a frame, over the six bytes before it. */
static uint32_t sum_of(const unsigned char *frame)
{
	uint32_t sum = 0xFFFFFFFFu;
	for (size_t i = 0; i < 6; i++) {
		sum = crc_table[(sum ^ frame[i]) & 0xFF] ^ (sum >> 8);
	}
	return ~sum;
}

size_t native_frame_length(const unsigned char *bytes)
{
	uint32_t words = bytes[0] & 0x0F, payload = read_u32(bytes + 2);
	if (bytes[0] >> 4 != 1 || words < 3 || words > 13 || payload > NATIVE_MAX_PAYLOAD || read_u32(bytes + 6) != sum_of(bytes)) {
		return 0;
	}
	return words * 4 + (size_t) payload;
}

size_t native_context_length(const unsigned char *frame)
{
	return read_u32(frame + NATIVE_FRAME_START);
}

bool native_read_envelope(const unsigned char *frame, size_t length, native_envelope *envelope)
{
	if (frame[0] != VERSION_AND_WORDS || frame[1] != NATIVE_FLAG || length < NATIVE_FRAME + NATIVE_ENVELOPE) {
		return false;
	}
	const unsigned char *context = frame + NATIVE_FRAME;
	*envelope = (native_envelope) {
		.kind = context[0], .flags = context[1], .small = read_u16(context + 2), .call = read_u32(context + 4),
	};
	return true;
}

static bool find(uint32_t *offset, const zend_class_entry *class, const char *name)
{
	const zend_property_info *property = zend_hash_str_find_ptr(&class->properties_info, name, strlen(name));
	if (property == NULL || property->flags & ZEND_ACC_STATIC) {
		return false;
	}
	*offset = property->offset;
	return true;
}

const char *native_find(const native_wanted *wanted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!find(wanted[i].offset, wanted[i].class, wanted[i].name)) {
			return wanted[i].name;
		}
	}
	return NULL;
}

const char *native_find_slots(native_slots *slots, const native_classes *classes)
{
	const zend_class_entry *http = classes->http, *request = classes->request, *raw = classes->raw;
	const zend_class_entry *grpc = classes->grpc, *call = classes->grpc_call;
	const native_wanted wanted[] = {
		{&slots->id, http, "id"}, {&slots->started_at, request, "startedAt"}, {&slots->deadline, http, "deadline"},
		{&slots->request, http, "request"}, {&slots->method, request, "method"}, {&slots->remote, request, "remoteAddress"},
		{&slots->uri, request, "uri"}, {&slots->host, request, "host"}, {&slots->path, request, "path"},
		{&slots->query, request, "queryString"}, {&slots->protocol, request, "protocol"}, {&slots->fields, request, "fields"},
		{&slots->attributes, request, "attributes"}, {&slots->flags, request, "flags"}, {&slots->count, request, "count"},
		{&slots->payload, request, "payload"}, {&slots->raw_started_at, raw, "startedAt"},
		{&slots->raw_payload, raw, "payload"}, {&slots->grpc_started_at, grpc, "startedAt"},
		{&slots->grpc_service, grpc, "service"}, {&slots->grpc_method, grpc, "method"}, {&slots->grpc_body, grpc, "body"},
		{&slots->grpc_streams, grpc, "serverStreams"}, {&slots->grpc_call, grpc, "grpcCall"},
		{&slots->call_exchange, call, "exchange"}, {&slots->call_service, call, "service"},
		{&slots->call_method, call, "method"}, {&slots->call_metadata, call, "metadata"},
		{&slots->call_streams, call, "serverStreams"},
	};
	return native_find(wanted, sizeof wanted / sizeof *wanted);
}

/* The slot of a fresh clone; what the original had there is let go. */
static zval *slot(zend_object *object, uint32_t offset)
{
	zval *value = OBJ_PROP(object, offset);
	zval_ptr_dtor_nogc(value);
	return value;
}

/* Adds a name and its value. */
typedef void pair_function(zend_array *pairs, const char *name, size_t length, zend_string *value);

/* One value more under this name. */
static void add_header(zend_array *headers, const char *name, size_t length, zend_string *value)
{
	zend_ulong number;
	zend_string *key = NULL;
	zval *values, text;
	if (ZEND_HANDLE_NUMERIC_STR(name, length, number)) {
		values = zend_hash_index_lookup(headers, number);
	} else {
		key = string_of(name, length);
		values = zend_hash_lookup(headers, key);
		zend_string_release(key);
	}
	ZVAL_STR(&text, value);
	if (Z_TYPE_P(values) == IS_NULL) {
		array_init_size(values, 1);
		zend_hash_real_init_packed(Z_ARRVAL_P(values));
	}
	zend_hash_next_index_insert_new(Z_ARRVAL_P(values), &text);
}

/* One value for this name: the last one. */
static void set_attribute(zend_array *attributes, const char *name, size_t length, zend_string *value)
{
	zval text;
	ZVAL_STR(&text, value);
	zend_symtable_str_update(attributes, name, length, &text);
}

/* Fields of a table of pairs of lengths, and after it the strings; false where they do not end
 * where they should. */
static bool read_pairs(
	zval *into, const unsigned char *table, uint32_t count, const unsigned char *at, const unsigned char *end, pair_function *add
)
{
	array_init_size(into, count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t name = read_u32(table + 8 * (size_t) i), value = read_u32(table + 8 * (size_t) i + 4);
		if (name > (size_t) (end - at) || value > (size_t) (end - at) - name) {
			at = NULL;
			break;
		}
		add(Z_ARRVAL_P(into), (const char *) at, name, zend_string_init_fast((const char *) at + name, value));
		at += (size_t) name + value;
	}
	if (at == end) {
		return true;
	}
	zval_ptr_dtor(into);
	return false;
}

/* The strings of a request's text, each up to the next NUL. */
static bool read_line(const native_slots *slots, zend_object *request, const char *text, const char *end)
{
	const uint32_t into[NATIVE_LINE] = {slots->method, slots->remote, slots->uri, slots->host, slots->path, slots->query};
	for (size_t i = 0; i < NATIVE_LINE; i++) {
		const char *nul = text > end ? NULL : memchr(text, 0, (size_t) (end - text));
		if (text > end || (nul == NULL && i < NATIVE_LINE - 1)) {
			return false;
		}
		size_t length = (size_t) ((nul == NULL ? end : nul) - text);
		ZVAL_STR(slot(request, into[i]), i == 0 ? string_of(text, length) : zend_string_init_fast(text, length));
		/* One beyond the end: there was no NUL, so there are no headers. */
		text += length + 1;
	}
	zval *fields = slot(request, slots->fields);
	if (text > end) {
		ZVAL_NULL(fields);
	} else {
		ZVAL_STR(fields, zend_string_init_fast(text, (size_t) (end - text)));
	}
	return true;
}

static zend_string *protocol_of(uint16_t number)
{
	switch (number) {
		case 10:
			return known_protocols[PROTOCOL_10];
		case 20:
			return known_protocols[PROTOCOL_2];
		case 30:
			return known_protocols[PROTOCOL_3];
		default:
			return known_protocols[PROTOCOL_11];
	}
}

static bool fill_request(
	const native_slots *slots, zend_object *request, const unsigned char *context, size_t context_length, zend_string *payload,
	const native_envelope *envelope
)
{
	uint32_t text = read_u32(context + 24);
	uint16_t attributes = read_u16(context + 22);
	const unsigned char *table = context + NATIVE_REQUEST_HEAD, *end = context + context_length;
	ZVAL_STR(slot(request, slots->payload), payload);
	if (8 * (size_t) attributes > context_length - NATIVE_REQUEST_HEAD
		|| text > context_length - NATIVE_REQUEST_HEAD - 8 * (size_t) attributes) {
		return false;
	}
	const unsigned char *strings = table + 8 * (size_t) attributes;
	if (!read_line(slots, request, (const char *) strings, (const char *) strings + text)) {
		return false;
	}
	zval *named = slot(request, slots->attributes);
	if (attributes == 0) {
		ZVAL_EMPTY_ARRAY(named);
	} else if (!read_pairs(named, table, attributes, strings + text, end, set_attribute)) {
		ZVAL_EMPTY_ARRAY(named);
		return false;
	}
	ZVAL_INTERNED_STR(slot(request, slots->protocol), protocol_of(read_u16(context + 20)));
	ZVAL_LONG(slot(request, slots->flags), envelope->flags);
	ZVAL_LONG(slot(request, slots->count), envelope->small);
	return attributes > 0 || strings + text == end;
}

static zend_long deadline_after(uint32_t milliseconds)
{
	return (zend_long) (clock_nanoseconds() + (int64_t) milliseconds * 1000000);
}

/* With what the head of every call says, but for when it was accepted. */
static zend_object *exchange_of(
	const native_slots *slots, zend_object *empty, const unsigned char *context, const native_envelope *envelope
)
{
	zend_object *exchange = zend_objects_clone_obj(empty);
	ZVAL_LONG(slot(exchange, slots->id), envelope->call);
	uint32_t left = read_u32(context + 16);
	zval *deadline = slot(exchange, slots->deadline);
	if (left == NATIVE_NO_LIMIT) {
		ZVAL_NULL(deadline);
	} else {
		ZVAL_LONG(deadline, deadline_after(left));
	}
	return exchange;
}

zend_object *native_read_request(
	const native_slots *slots, zend_object *empty, const unsigned char *frame, size_t length, const native_envelope *envelope
)
{
	const unsigned char *context = frame + NATIVE_FRAME;
	size_t context_length = native_context_length(frame);
	if (context_length > length - NATIVE_FRAME || context_length < NATIVE_REQUEST_HEAD || envelope->call == 0) {
		return NULL;
	}
	/* Seldom, and the body is asked for by PHP code. */
	if (envelope->flags & NATIVE_BODY_STREAM) {
		return NULL;
	}
	zend_string *payload = zend_string_init_fast((const char *) context + context_length, length - NATIVE_FRAME - context_length);
	zend_object *exchange = exchange_of(slots, empty, context, envelope);
	zend_object *request = zend_objects_clone_obj(Z_OBJ_P(OBJ_PROP(empty, slots->request)));
	ZVAL_OBJ(slot(exchange, slots->request), request);
	ZVAL_LONG(slot(request, slots->started_at), (zend_long) read_u64(context + NATIVE_ENVELOPE));
	if (!fill_request(slots, request, context, context_length, payload, envelope)) {
		OBJ_RELEASE(exchange);
		return NULL;
	}
	return exchange;
}

zend_object *native_read_raw(
	const native_slots *slots, zend_object *empty, const unsigned char *frame, size_t length, const native_envelope *envelope
)
{
	const unsigned char *context = frame + NATIVE_FRAME, *payload = context + NATIVE_CALL_HEAD;
	/* Its bytes are in the frame, however many. */
	if (length < NATIVE_FRAME + NATIVE_CALL_HEAD || native_context_length(frame) != NATIVE_CALL_HEAD
		|| (envelope->flags & ~(NATIVE_DEVELOPMENT | NATIVE_TIMED)) != 0 || envelope->call == 0) {
		return NULL;
	}
	zend_string *bytes = zend_string_init_fast((const char *) payload, length - NATIVE_FRAME - NATIVE_CALL_HEAD);
	zend_object *exchange = exchange_of(slots, empty, context, envelope);
	ZVAL_LONG(slot(exchange, slots->raw_started_at), (zend_long) read_u64(context + NATIVE_ENVELOPE));
	ZVAL_STR(slot(exchange, slots->raw_payload), bytes);
	return exchange;
}

zend_object *native_read_grpc(
	const native_slots *slots, zend_object *empty, const unsigned char *frame, size_t length, const native_envelope *envelope
)
{
	const unsigned char *context = frame + NATIVE_FRAME, *table = context + NATIVE_GRPC_HEAD;
	size_t context_length = native_context_length(frame);
	/* Messages of a client that streams are asked for by PHP code. */
	if (context_length > length - NATIVE_FRAME || context_length < NATIVE_GRPC_HEAD || envelope->call == 0
		|| (envelope->flags & ~(NATIVE_DEVELOPMENT | NATIVE_TIMED | NATIVE_STREAMS)) != 0) {
		return NULL;
	}
	const unsigned char *end = context + context_length;
	const uint32_t service = read_u32(context + NATIVE_CALL_HEAD), method = read_u32(context + NATIVE_CALL_HEAD + 4);
	size_t left = context_length - NATIVE_GRPC_HEAD;
	if (8 * (size_t) envelope->small > left || service > left - 8 * (size_t) envelope->small
		|| method > left - 8 * (size_t) envelope->small - service) {
		return NULL;
	}
	const unsigned char *strings = table + 8 * (size_t) envelope->small;
	zval metadata;
	if (!read_pairs(&metadata, table, envelope->small, strings + service + method, end, add_header)) {
		return NULL;
	}
	zend_object *exchange = exchange_of(slots, empty, context, envelope);
	zend_object *call = zend_objects_clone_obj(Z_OBJ_P(OBJ_PROP(empty, slots->grpc_call)));
	zval *name = slot(exchange, slots->grpc_service), *of = slot(exchange, slots->grpc_method);
	ZVAL_LONG(slot(exchange, slots->grpc_started_at), (zend_long) read_u64(context + NATIVE_ENVELOPE));
	ZVAL_STR(name, zend_string_init_fast((const char *) strings, service));
	ZVAL_STR(of, zend_string_init_fast((const char *) strings + service, method));
	ZVAL_STR(slot(exchange, slots->grpc_body), zend_string_init_fast((const char *) end, length - NATIVE_FRAME - context_length));
	ZVAL_BOOL(slot(exchange, slots->grpc_streams), (envelope->flags & NATIVE_STREAMS) != 0);
	ZVAL_COPY(slot(call, slots->call_service), name);
	ZVAL_COPY(slot(call, slots->call_method), of);
	ZVAL_COPY_VALUE(slot(call, slots->call_metadata), &metadata);
	ZVAL_BOOL(slot(call, slots->call_streams), (envelope->flags & NATIVE_STREAMS) != 0);
	ZVAL_OBJ_COPY(slot(call, slots->call_exchange), exchange);
	ZVAL_OBJ(slot(exchange, slots->grpc_call), call);
	return exchange;
}

bool native_read_headers(zval *into, const zend_string *fields, zend_string *host, uint32_t count)
{
	array_init_size(into, count + 1);
	if (ZSTR_LEN(host) > 0) {
		add_header(Z_ARRVAL_P(into), ZEND_STRL("host"), zend_string_copy(host));
	}
	const char *at = fields == NULL ? NULL : ZSTR_VAL(fields), *end = fields == NULL ? NULL : at + ZSTR_LEN(fields);
	while (at != NULL && count > 0) {
		const char *value = memchr(at, 0, (size_t) (end - at));
		if (value == NULL) {
			break;
		}
		value++;
		const char *nul = memchr(value, 0, (size_t) (end - value));
		const char *stop = nul == NULL ? end : nul;
		add_header(Z_ARRVAL_P(into), at, (size_t) (value - 1 - at), zend_string_init_fast(value, (size_t) (stop - value)));
		count--;
		at = nul == NULL ? NULL : nul + 1;
	}
	if (count == 0 && at == NULL) {
		return true;
	}
	zval_ptr_dtor(into);
	return false;
}

static bool collect(native_fields *fields, zend_string *name, zval *value)
{
	zend_string *text = zval_try_get_string(value);
	if (text == NULL) {
		return false;
	}
	if (fields->count == fields->room) {
		fields->room = fields->room == 0 ? FEW : 2 * fields->room;
		fields->fields = safe_erealloc(fields->fields, fields->room, sizeof *fields->fields, 0);
	}
	fields->fields[fields->count++] = (struct native_field) {.name = zend_string_copy(name), .value = text};
	fields->bytes += ZSTR_LEN(name) + ZSTR_LEN(text);
	return fields->bytes <= NATIVE_MAX_PAYLOAD && fields->count < NATIVE_MAX_PAYLOAD / 8;
}

static bool collect_all(native_fields *fields, zend_string *name, zval *values)
{
	ZVAL_DEREF(values);
	if (Z_TYPE_P(values) != IS_ARRAY) {
		return collect(fields, name, values);
	}
	/* Held: a value's __toString() may change what it came from. */
	zend_array *list = Z_ARRVAL_P(values);
	zval *value;
	bool good = true;
	GC_TRY_ADDREF(list);
	ZEND_HASH_FOREACH_VAL(list, value) {
		good = good && collect(fields, name, value);
	} ZEND_HASH_FOREACH_END();
	zend_array_release(list);
	return good;
}

bool native_collect_fields(native_fields *fields, zend_array *headers)
{
	zend_ulong number;
	zend_string *name;
	zval *values;
	*fields = (native_fields) {0};
	ZEND_HASH_FOREACH_KEY_VAL(headers, number, name, values) {
		zend_string *key = name == NULL ? zend_long_to_str((zend_long) number) : zend_string_copy(name);
		bool good = collect_all(fields, key, values);
		zend_string_release(key);
		if (!good) {
			if (!EG(exception)) {
				zend_value_error("A reply has too many or too long headers");
			}
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

void native_release_fields(native_fields *fields)
{
	for (uint32_t i = 0; i < fields->count; i++) {
		zend_string_release(fields->fields[i].name);
		zend_string_release(fields->fields[i].value);
	}
	if (fields->fields != NULL) {
		efree(fields->fields);
	}
}

size_t native_fields_length(const native_fields *fields)
{
	return 4 + 8 * (size_t) fields->count + fields->bytes;
}

unsigned char *native_write_head(unsigned char *at, const native_envelope *envelope, size_t context, size_t body, bool more)
{
	unsigned char *frame = at;
	*at++ = VERSION_AND_WORDS;
	*at++ = NATIVE_FLAG;
	at = write_u32(at, (uint32_t) (NATIVE_ENVELOPE + context + body));
	at = write_u32(at, sum_of(frame));
	*at++ = more ? MORE : 0;
	*at++ = 0;
	at = write_u32(at, (uint32_t) (NATIVE_ENVELOPE + context));
	*at++ = envelope->kind;
	*at++ = envelope->flags;
	at = write_u16(at, envelope->small);
	return write_u32(at, envelope->call);
}

unsigned char *native_write_fields(unsigned char *at, const native_fields *fields)
{
	at = write_u32(at, fields->count);
	for (uint32_t i = 0; i < fields->count; i++) {
		at = write_u32(at, (uint32_t) ZSTR_LEN(fields->fields[i].name));
		at = write_u32(at, (uint32_t) ZSTR_LEN(fields->fields[i].value));
	}
	for (uint32_t i = 0; i < fields->count; i++) {
		at = write_string(at, fields->fields[i].name);
		at = write_string(at, fields->fields[i].value);
	}
	return at;
}

unsigned char *native_write_spent(unsigned char *at, uint32_t call, uint32_t cpu, uint32_t blocked)
{
	const native_envelope envelope = {.kind = NATIVE_SPENT, .flags = NATIVE_IGNORABLE, .call = call};
	at = native_write_head(at, &envelope, 2 * sizeof(uint32_t), 0, false);
	at = write_u32(at, cpu);
	return write_u32(at, blocked);
}

size_t native_write_control(unsigned char *at, const char *text, size_t length)
{
	unsigned char *frame = at;
	*at++ = VERSION_AND_HEAD;
	*at++ = CONTROL_FLAGS;
	at = write_u32(at, (uint32_t) length);
	at = write_u32(at, sum_of(frame));
	*at++ = 0;
	*at++ = 0;
	memcpy(at, text, length);
	return NATIVE_FRAME_START + length;
}
