/* Storages in shared memory, as PHP has them. How values lie there: strings, numbers, booleans and
 * null as they are, all else by igbinary where it is there, or by PHP's serializer. */
#include "cache.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>

#include "ext/standard/php_var.h"
#include "zend_exceptions.h"
#include "zend_smart_str.h"

/* What the server hands over: a line for each storage, a descriptor, `=` and the name. */
#define OFFER "PRONGHORN_CACHE"
/* The server has no more. */
#define STORAGES 64
/* A year of 2,000 centuries: what is longer has no end. */
#define LONGEST_TTL 6.3e12

static struct {
	char *name;
	cache_segment segment;
} storages[STORAGES];
static unsigned mapped;

typedef struct {
	const cache_segment *segment;
	zend_object object;
} shared_memory;

static zend_object_handlers handlers;
static zend_class_entry *class_entry;

static shared_memory *of_object(zend_object *object)
{
	return (shared_memory *) ((char *) object - offsetof(shared_memory, object));
}

static zend_object *create_object(zend_class_entry *class)
{
	shared_memory *created = zend_object_alloc(sizeof *created, class);
	zend_object_std_init(&created->object, class);
	object_properties_init(&created->object, class);
	created->object.handlers = &handlers;
	return &created->object;
}

/* What can't be mapped is not there: the package goes another way then, and says so. */
static void map_storage(char *line)
{
	char *name = NULL;
	const long memory = strtol(line, &name, 10);
	if (mapped == STORAGES || memory < 3 || memory > INT_MAX || *name != '=' || name[1] == '\0') {
		return;
	}
	if (cache_map(&storages[mapped].segment, (int) memory) == NULL) {
		close((int) memory);
		storages[mapped].name = pestrdup(name + 1, true);
		mapped++;
	}
}

void cache_startup(zend_class_entry *shared)
{
	class_entry = shared;
	class_entry->create_object = create_object;
	memcpy(&handlers, &std_object_handlers, sizeof handlers);
	handlers.offset = offsetof(shared_memory, object);
	handlers.clone_obj = NULL;
	const char *offer = getenv(OFFER);
	if (offer == NULL) {
		return;
	}
	char *lines = pestrdup(offer, true), *rest = NULL;
	for (char *line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		map_storage(line);
	}
	pefree(lines, true);
	/* Programs that this one starts have other descriptors of these numbers. */
	unsetenv(OFFER);
	pthread_atfork(NULL, NULL, cache_forked);
}

const cache_segment *cache_find(const char *name)
{
	if (name == NULL) {
		return mapped == 1 ? &storages[0].segment : NULL;
	}
	for (unsigned i = 0; i < mapped; i++) {
		if (strcasecmp(storages[i].name, name) == 0) {
			return &storages[i].segment;
		}
	}
	return NULL;
}

/* ---- Values ---- */

/* A value on its way: what was made for it is released in the end. */
typedef struct {
	const void *bytes;
	size_t length;
	uint32_t kind;
	zend_long number;
	double fraction;
	zend_string *owned;
} packed;

static void release(packed *value)
{
	if (value->owned != NULL) {
		zend_string_release(value->owned);
	}
}

/* Calls a function of igbinary. False: it is not there, or has failed. */
static bool by_igbinary(const char *function, zval *argument, zval *result)
{
	zval name;
	ZVAL_UNDEF(result);
	if (zend_hash_str_find_ptr(EG(function_table), function, strlen(function)) == NULL) {
		return false;
	}
	ZVAL_STRING(&name, function);
	const bool called = call_user_function(NULL, NULL, &name, result, 1, argument) == SUCCESS;
	zval_ptr_dtor(&name);
	return called && EG(exception) == NULL;
}

static bool serialize(packed *into, zval *value)
{
	zval text;
	if (by_igbinary("igbinary_serialize", value, &text) && Z_TYPE(text) == IS_STRING) {
		into->kind = CACHE_IGBINARY;
		into->owned = Z_STR(text);
	} else {
		zval_ptr_dtor(&text);
		if (EG(exception) != NULL) {
			return false;
		}
		smart_str out = {0};
		php_serialize_data_t data;
		PHP_VAR_SERIALIZE_INIT(data);
		php_var_serialize(&out, value, &data);
		PHP_VAR_SERIALIZE_DESTROY(data);
		if (EG(exception) != NULL || out.s == NULL) {
			smart_str_free(&out);
			return false;
		}
		smart_str_0(&out);
		into->kind = CACHE_SERIALIZED;
		into->owned = out.s;
	}
	into->bytes = ZSTR_VAL(into->owned);
	into->length = ZSTR_LEN(into->owned);
	return true;
}

/* False: an exception was thrown. */
static bool pack(packed *into, zval *value)
{
	ZVAL_DEREF(value);
	*into = (packed) {.bytes = "", .kind = CACHE_NULL};
	switch (Z_TYPE_P(value)) {
		case IS_NULL:
			return true;
		case IS_FALSE:
		case IS_TRUE:
			into->kind = Z_TYPE_P(value) == IS_TRUE ? CACHE_TRUE : CACHE_FALSE;
			return true;
		case IS_LONG:
			into->kind = CACHE_INTEGER;
			into->number = Z_LVAL_P(value);
			into->bytes = &into->number;
			into->length = sizeof into->number;
			return true;
		case IS_DOUBLE:
			into->kind = CACHE_FLOAT;
			into->fraction = Z_DVAL_P(value);
			into->bytes = &into->fraction;
			into->length = sizeof into->fraction;
			return true;
		case IS_STRING:
			into->kind = CACHE_BYTES;
			into->bytes = Z_STRVAL_P(value);
			into->length = Z_STRLEN_P(value);
			return true;
		default:
			return serialize(into, value);
	}
}

/* Takes the string. False: it is broken, or of a program that has more extensions. */
static bool unpack(zval *into, uint32_t kind, zend_string *value)
{
	bool known = true;
	zval text;
	switch (kind & 0xff) {
		case CACHE_BYTES:
			ZVAL_STR(into, value);
			return true;
		case CACHE_INTEGER: {
			int64_t number = 0;
			memcpy(&number, ZSTR_VAL(value), MIN(ZSTR_LEN(value), sizeof number));
			ZVAL_LONG(into, (zend_long) number);
			break;
		}
		case CACHE_FLOAT: {
			double fraction = 0;
			memcpy(&fraction, ZSTR_VAL(value), MIN(ZSTR_LEN(value), sizeof fraction));
			ZVAL_DOUBLE(into, fraction);
			break;
		}
		case CACHE_NULL:
			ZVAL_NULL(into);
			break;
		case CACHE_FALSE:
		case CACHE_TRUE:
			ZVAL_BOOL(into, (kind & 0xff) == CACHE_TRUE);
			break;
		case CACHE_SERIALIZED: {
			const unsigned char *at = (const unsigned char *) ZSTR_VAL(value);
			php_unserialize_data_t data;
			ZVAL_UNDEF(into);
			PHP_VAR_UNSERIALIZE_INIT(data);
			known = php_var_unserialize(into, &at, at + ZSTR_LEN(value), &data) != 0 && EG(exception) == NULL;
			PHP_VAR_UNSERIALIZE_DESTROY(data);
			if (!known) {
				zval_ptr_dtor(into);
				ZVAL_UNDEF(into);
			}
			break;
		}
		case CACHE_IGBINARY:
			ZVAL_STR(&text, value);
			known = by_igbinary("igbinary_unserialize", &text, into);
			/* Neither is ever kept so: it says that it can't read this. */
			if (known && (Z_TYPE_P(into) == IS_NULL || Z_TYPE_P(into) == IS_FALSE)) {
				known = false;
			}
			break;
		default:
			known = false;
	}
	zend_string_release(value);
	return known;
}

/* ---- Reading ---- */

/* The string that a value is copied into. */
static void *allocate_string(void *context, size_t length)
{
	zend_string **value = context;
	if (*value != NULL) {
		zend_string_release(*value);
	}
	*value = zend_string_alloc(length, false);
	ZSTR_VAL(*value)[length] = '\0';
	return ZSTR_VAL(*value);
}

bool cache_fetch(const cache_segment *segment, const char *key, size_t length, cache_head *head, zend_string **value)
{
	*value = NULL;
	const bool is_there = cache_read(segment, key, length, head, allocate_string, value);
	if (!is_there && *value != NULL) {
		zend_string_release(*value);
		*value = NULL;
	}
	return is_there;
}

/* False: it is not there. */
static bool fetch(const cache_segment *segment, const char *key, size_t length, zval *into)
{
	cache_head head;
	zend_string *value;
	return cache_fetch(segment, key, length, &head, &value) && unpack(into, head.kind, value);
}

/* ---- Arguments ---- */

static const cache_segment *segment_of(zval *object)
{
	const cache_segment *segment = of_object(Z_OBJ_P(object))->segment;
	if (segment == NULL) {
		zend_throw_error(NULL, "The storage was not opened");
	}
	return segment;
}

static bool is_key(size_t length, uint32_t argument)
{
	if (length == 0 || length > CACHE_LONGEST_KEY) {
		zend_argument_value_error(argument, "must have 1 to %d bytes, has %zu", (int) CACHE_LONGEST_KEY, length);
		return false;
	}
	return true;
}

/* When an entry ends that is kept for so long; `is_over` where that is no time at all. */
static bool end_of(bool no_end, double seconds, uint32_t argument, uint64_t *ends, bool *is_over)
{
	*ends = 0;
	*is_over = false;
	if (no_end) {
		return true;
	}
	if (isnan(seconds)) {
		zend_argument_value_error(argument, "must be a number of seconds");
		return false;
	}
	if (seconds <= 0) {
		*is_over = true;
	} else if (seconds < LONGEST_TTL) {
		*ends = cache_now() + (uint64_t) ceil(seconds * 1000);
	}
	return true;
}

/* ---- Methods ---- */

ZEND_METHOD(Pronghorn_Cache_SharedMemory, __construct)
{
	ZEND_PARSE_PARAMETERS_NONE();
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, open)
{
	char *name;
	size_t length;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STRING(name, length)
	ZEND_PARSE_PARAMETERS_END();

	const cache_segment *segment = cache_find(name);
	if (segment == NULL) {
		RETURN_NULL();
	}
	object_init_ex(return_value, class_entry);
	of_object(Z_OBJ_P(return_value))->segment = segment;
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, get)
{
	char *key;
	size_t length;
	zval *otherwise = NULL;

	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STRING(key, length)
		Z_PARAM_OPTIONAL
		Z_PARAM_ZVAL(otherwise)
	ZEND_PARSE_PARAMETERS_END();

	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL || !is_key(length, 1)) {
		RETURN_THROWS();
	}
	if (!fetch(segment, key, length, return_value) && EG(exception) == NULL && otherwise != NULL) {
		RETURN_COPY_DEREF(otherwise);
	}
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, many)
{
	zval *keys, *key;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ARRAY(keys)
	ZEND_PARSE_PARAMETERS_END();

	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL) {
		RETURN_THROWS();
	}
	array_init(return_value);
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(keys), key) {
		zend_string *temporary, *name = zval_get_tmp_string(key, &temporary);
		zval value;
		if (EG(exception) == NULL && is_key(ZSTR_LEN(name), 1) && fetch(segment, ZSTR_VAL(name), ZSTR_LEN(name), &value)) {
			zend_symtable_update(Z_ARRVAL_P(return_value), name, &value);
		}
		zend_tmp_string_release(temporary);
		if (EG(exception) != NULL) {
			RETURN_THROWS();
		}
	} ZEND_HASH_FOREACH_END();
}

/* Only where nothing is there. */
static bool if_missing(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	(void) context, (void) value, (void) entry;
	return head == NULL;
}

static bool if_same(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	const packed *expected = context;
	(void) entry;
	return head != NULL && (head->kind & 0xff) == expected->kind && head->value_length == expected->length
		&& memcmp(value, expected->bytes, expected->length) == 0;
}

/* Whether it was kept. */
static bool put(const cache_segment *segment, const char *key, size_t length, const packed *value, uint64_t ends, cache_condition *condition, void *context)
{
	cache_entry entry = {
		.key = key, .key_length = length, .value = value->bytes, .value_length = value->length, .kind = value->kind, .ends = ends,
	};
	return cache_put(segment, &entry, condition, context) == CACHE_DONE;
}

/* `set` and `add`. */
static void keep(INTERNAL_FUNCTION_PARAMETERS, cache_condition *condition)
{
	char *key;
	size_t length;
	zval *value;
	double ttl = 0;
	bool no_end = true, is_over;
	uint64_t ends;
	packed bytes;

	ZEND_PARSE_PARAMETERS_START(2, 3)
		Z_PARAM_STRING(key, length)
		Z_PARAM_ZVAL(value)
		Z_PARAM_OPTIONAL
		Z_PARAM_DOUBLE_OR_NULL(ttl, no_end)
	ZEND_PARSE_PARAMETERS_END();

	no_end = no_end || ZEND_NUM_ARGS() < 3;
	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL || !is_key(length, 1) || !end_of(no_end, ttl, 3, &ends, &is_over)) {
		RETURN_THROWS();
	}
	if (is_over) {
		/* What would end at once takes the place of what was there. */
		if (condition == NULL) {
			cache_delete(segment, key, length);
		}
		RETURN_BOOL(condition == NULL);
	}
	if (!pack(&bytes, value)) {
		RETURN_THROWS();
	}
	RETVAL_BOOL(put(segment, key, length, &bytes, ends, condition, NULL));
	release(&bytes);
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, set)
{
	keep(INTERNAL_FUNCTION_PARAM_PASSTHRU, NULL);
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, add)
{
	keep(INTERNAL_FUNCTION_PARAM_PASSTHRU, if_missing);
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, delete)
{
	char *key;
	size_t length;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STRING(key, length)
	ZEND_PARSE_PARAMETERS_END();

	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL || !is_key(length, 1)) {
		RETURN_THROWS();
	}
	RETURN_BOOL(cache_delete(segment, key, length));
}

typedef struct {
	int64_t by, sum;
	bool is_number;
} addition;

static bool add_to(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	addition *adding = context;
	int64_t before = 0;
	adding->is_number = head == NULL || ((head->kind & 0xff) == CACHE_INTEGER && head->value_length == sizeof before);
	if (!adding->is_number) {
		return false;
	}
	if (head != NULL) {
		memcpy(&before, value, sizeof before);
		entry->ends = head->ends;
	}
	return !__builtin_add_overflow(before, adding->by, &adding->sum);
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, increment)
{
	char *key;
	size_t length;
	zend_long by = 1;
	double ttl = 0;
	bool no_end = true, is_over;
	uint64_t ends;

	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STRING(key, length)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(by)
		Z_PARAM_DOUBLE_OR_NULL(ttl, no_end)
	ZEND_PARSE_PARAMETERS_END();

	no_end = no_end || ZEND_NUM_ARGS() < 3;
	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL || !is_key(length, 1) || !end_of(no_end, ttl, 3, &ends, &is_over)) {
		RETURN_THROWS();
	}
	if (is_over) {
		zend_argument_value_error(3, "must be above 0");
		RETURN_THROWS();
	}
	addition adding = {.by = by, .is_number = true};
	cache_entry entry = {
		.key = key, .key_length = length, .value = &adding.sum, .value_length = sizeof adding.sum, .kind = CACHE_INTEGER, .ends = ends,
	};
	switch (cache_put(segment, &entry, add_to, &adding)) {
		case CACHE_DONE:
			RETURN_LONG((zend_long) adding.sum);
		case CACHE_DIFFERS:
			zend_value_error("%s", adding.is_number ? "The sum is too large for an integer" : "What is there is no integer");
			RETURN_THROWS();
		default:
			zend_throw_error(NULL, "The storage has no room");
			RETURN_THROWS();
	}
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, compareAndSwap)
{
	char *key;
	size_t length;
	zval *before, *after;
	double ttl = 0;
	bool no_end = true, is_over;
	uint64_t ends;
	packed expected, bytes;

	ZEND_PARSE_PARAMETERS_START(3, 4)
		Z_PARAM_STRING(key, length)
		Z_PARAM_ZVAL(before)
		Z_PARAM_ZVAL(after)
		Z_PARAM_OPTIONAL
		Z_PARAM_DOUBLE_OR_NULL(ttl, no_end)
	ZEND_PARSE_PARAMETERS_END();

	no_end = no_end || ZEND_NUM_ARGS() < 4;
	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL || !is_key(length, 1) || !end_of(no_end, ttl, 4, &ends, &is_over) || !pack(&expected, before)) {
		RETURN_THROWS();
	}
	if (pack(&bytes, after)) {
		/* An end that has come: it is there for a millisecond. */
		RETVAL_BOOL(put(segment, key, length, &bytes, is_over ? 1 : ends, if_same, &expected));
		release(&bytes);
	}
	release(&expected);
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, clear)
{
	char *prefix = "";
	size_t length = 0;

	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_STRING(prefix, length)
	ZEND_PARSE_PARAMETERS_END();

	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL) {
		RETURN_THROWS();
	}
	RETURN_LONG((zend_long) cache_clear(segment, prefix, length));
}

ZEND_METHOD(Pronghorn_Cache_SharedMemory, longest)
{
	ZEND_PARSE_PARAMETERS_NONE();

	const cache_segment *segment = segment_of(ZEND_THIS);
	if (segment == NULL) {
		RETURN_THROWS();
	}
	RETURN_LONG((zend_long) (segment->block_size - CACHE_ENTRY));
}
