#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "leaks.h"

#include <locale.h>

#include "php_output.h"
#include "zend_closures.h"
#include "zend_enum.h"
#include "zend_gc.h"
#if PHP_VERSION_ID >= 80400
#include "zend_lazy_objects.h"
#endif

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

/* So many calls of one route in a row have to change a place: caches are filled once. */
#define TIMES 3
/* How deep a value is looked at, and at how many values inside of it. */
#define DEPTH 3
#define NODES 128
/* A longer text is the same as long as its length is. */
#define LONGEST_TEXT 65536
/* An application with more is not looked at beyond them. */
#define MOST_PLACES 20000
/* Pairs of a place and a route that are counted; then it begins anew. */
#define MOST_PAIRS 4096

enum kind { PROPERTY, VARIABLE, GLOBAL, SETTING };

typedef struct {
	uint8_t type; /* IS_UNDEF: it is not there */
	uint32_t count;
	const zend_class_entry *class;
} shape_t;

typedef struct {
	enum kind kind;
	bool is_told;
	/* Some route has changed it of late. */
	bool is_suspect;
	zend_string *name;
	const zend_class_entry *class;
	const zend_op_array *function;
	/* Of a static property, where it is; of a setting, which one. */
	uint32_t at;
	uint64_t print;
	shape_t first, now;
} place_t;

static place_t *places;
static uint32_t count, room;
static uint32_t classes_seen, functions_seen;
/* Places of globals, by name; how often in a row routes have changed places, by both. */
static HashTable globals, pairs;
/* Classes whose destructors were told, by their addresses. */
static HashTable destructors;
static bool has_tables, is_watching, is_due, with_settings;
static zend_long every, calls;

/* ---- What a value is, in a number ---- */

static uint64_t mix(uint64_t print, uint64_t with)
{
	print = (print ^ with) * UINT64_C(0x9E3779B97F4A7C15);
	return print ^ (print >> 29);
}

static uint64_t mix_pointer(uint64_t print, const void *with)
{
	return mix(print, (uint64_t) (uintptr_t) with);
}

static uint64_t print_of(uint64_t print, const zval *value, unsigned depth, unsigned *nodes, bool in_object);

static uint64_t print_array(uint64_t print, const HashTable *array, unsigned depth, unsigned *nodes, bool in_object)
{
	zend_string *key;
	zend_ulong number;
	zval *value;
	print = mix(print, zend_hash_num_elements(array));
	ZEND_HASH_FOREACH_KEY_VAL((HashTable *) array, number, key, value) {
		if (*nodes == 0) {
			break;
		}
		if (!in_object) {
			print = mix(print, key == NULL ? number : ZSTR_HASH(key));
		}
		print = print_of(print, value, depth + 1, nodes, in_object);
	} ZEND_HASH_FOREACH_END();
	return print;
}

static bool is_open(zend_object *object)
{
#if PHP_VERSION_ID >= 80400
	if (zend_object_is_lazy(object)) {
		return false;
	}
#endif
	return object->ce != zend_ce_closure && (object->ce->ce_flags & ZEND_ACC_ENUM) == 0;
}

static uint64_t print_object(uint64_t print, zend_object *object, unsigned depth, unsigned *nodes)
{
	print = mix_pointer(print, object->ce);
	if (depth == 0) {
		/* Another one lay elsewhere while this one was there. */
		print = mix_pointer(mix(print, object->handle), object);
	}
	if (!is_open(object)) {
		return print;
	}
	for (int i = 0; i < object->ce->default_properties_count && *nodes > 0; i++) {
		print = print_of(print, &object->properties_table[i], depth + 1, nodes, true);
	}
	if (object->properties != NULL && object->ce->default_properties_count == 0) {
		print = print_array(print, object->properties, depth + 1, nodes, true);
	}
	return print;
}

/* Inside of objects numbers and texts may change: a kernel counts requests, a clock goes on. */
static uint64_t print_scalar(uint64_t print, const zval *value, bool in_object)
{
	if (in_object) {
		return mix(print, Z_TYPE_P(value) == IS_TRUE ? IS_FALSE : Z_TYPE_P(value));
	}
	print = mix(print, Z_TYPE_P(value));
	switch (Z_TYPE_P(value)) {
		case IS_LONG:
			return mix(print, (uint64_t) Z_LVAL_P(value));
		case IS_DOUBLE:
			return mix(print, (uint64_t) zend_dval_to_lval(Z_DVAL_P(value) * 1000));
		case IS_STRING:
			return mix(print, Z_STRLEN_P(value) > LONGEST_TEXT ? Z_STRLEN_P(value) : ZSTR_HASH(Z_STR_P(value)));
		default:
			return print;
	}
}

static uint64_t print_of(uint64_t print, const zval *value, unsigned depth, unsigned *nodes, bool in_object)
{
	if (Z_TYPE_P(value) == IS_INDIRECT) {
		value = Z_INDIRECT_P(value);
	}
	ZVAL_DEREF(value);
	if (depth > DEPTH || *nodes == 0) {
		return mix(print, Z_TYPE_P(value) == IS_TRUE ? IS_FALSE : Z_TYPE_P(value));
	}
	(*nodes)--;
	if (Z_TYPE_P(value) == IS_ARRAY) {
		return print_array(mix(print, IS_ARRAY), Z_ARRVAL_P(value), depth, nodes, in_object);
	}
	if (Z_TYPE_P(value) == IS_OBJECT) {
		return print_object(mix(print, IS_OBJECT), Z_OBJ_P(value), depth, nodes);
	}
	return print_scalar(print, value, in_object);
}

static shape_t shape_of(const zval *value)
{
	shape_t shape = {.type = IS_UNDEF};
	if (value == NULL) {
		return shape;
	}
	ZVAL_DEREF(value);
	shape.type = Z_TYPE_P(value) == IS_TRUE ? IS_FALSE : Z_TYPE_P(value);
	if (shape.type == IS_ARRAY) {
		shape.count = zend_hash_num_elements(Z_ARRVAL_P(value));
	} else if (shape.type == IS_STRING) {
		shape.count = (uint32_t) MIN(Z_STRLEN_P(value), UINT32_MAX);
	} else if (shape.type == IS_OBJECT) {
		shape.class = Z_OBJCE_P(value);
	}
	return shape;
}

static zend_string *describe(const shape_t *shape)
{
	switch (shape->type) {
		case IS_UNDEF:
			return zend_string_init(ZEND_STRL("nothing"), false);
		case IS_ARRAY:
			return zend_strpprintf(0, "array(%u)", shape->count);
		case IS_STRING:
			return zend_strpprintf(0, "string(%u)", shape->count);
		case IS_OBJECT:
			return zend_string_copy(shape->class->name);
		case IS_CONSTANT_AST:
			return zend_string_init(ZEND_STRL("a constant"), false);
		default:
			return zend_string_init(zend_get_type_by_const(shape->type), strlen(zend_get_type_by_const(shape->type)), false);
	}
}

/* ---- Where values are ---- */

static const char *const settings[] = {
	"the locale", "the number of settings of php.ini that are changed", "the level of output buffers",
	"the handler of errors", "the handler of exceptions",
};

static uint64_t print_setting(uint32_t which)
{
	unsigned nodes = 1;
	switch (which) {
		case 0: {
			const char *name = setlocale(LC_ALL, NULL);
			return zend_inline_hash_func(name, strlen(name));
		}
		case 1:
			return EG(modified_ini_directives) == NULL ? 0 : zend_hash_num_elements(EG(modified_ini_directives));
		case 2:
			return (uint64_t) php_output_get_level();
		case 3:
			return print_of(1, &EG(user_error_handler), 0, &nodes, false);
		default:
			return print_of(1, &EG(user_exception_handler), 0, &nodes, false);
	}
}

/* NULL: it is not there, or was not made yet. */
static const zval *value_of(const place_t *place)
{
	const zval *value = NULL;
	if (place->kind == PROPERTY) {
		const zval *all = ZEND_MAP_PTR(place->class->static_members_table) == NULL ? NULL : CE_STATIC_MEMBERS(place->class);
		value = all == NULL ? &place->class->default_static_members_table[place->at] : &all[place->at];
	} else if (place->kind == VARIABLE) {
		const zend_op_array *function = place->function;
		const HashTable *all = ZEND_MAP_PTR(function->static_variables_ptr) == NULL ? NULL : ZEND_MAP_PTR_GET(function->static_variables_ptr);
		value = zend_hash_find_known_hash(all == NULL ? function->static_variables : all, place->name);
	} else if (place->kind == GLOBAL) {
		value = zend_hash_find_known_hash(&EG(symbol_table), place->name);
	}
	if (value != NULL && Z_TYPE_P(value) == IS_INDIRECT) {
		value = Z_INDIRECT_P(value);
	}
	return value == NULL || Z_TYPE_P(value) == IS_UNDEF ? NULL : value;
}

static void look_at(place_t *place)
{
	unsigned nodes = NODES;
	if (place->kind == SETTING) {
		place->print = print_setting(place->at);
		return;
	}
	const zval *value = value_of(place);
	place->print = value == NULL ? 0 : print_of(1, value, 0, &nodes, false);
	place->now = shape_of(value);
}

static void add(place_t place)
{
	if (count >= MOST_PLACES) {
		return;
	}
	if (count == room) {
		room = room == 0 ? 256 : 2 * room;
		places = safe_perealloc(places, room, sizeof *places, 0, true);
	}
	places[count] = place;
	look_at(&places[count]);
	places[count].first = places[count].now;
	count++;
}

static void add_variables(const zend_function *function, const zend_class_entry *class)
{
	if (function->type != ZEND_USER_FUNCTION || function->op_array.static_variables == NULL || function->common.scope != class) {
		return;
	}
	zend_string *name;
	ZEND_HASH_FOREACH_STR_KEY(function->op_array.static_variables, name) {
		if (name != NULL) {
			add((place_t) {.kind = VARIABLE, .name = name, .class = class, .function = &function->op_array});
		}
	} ZEND_HASH_FOREACH_END();
}

static void add_class(zend_class_entry *class)
{
	static const char own[] = "Pronghorn\\";
	if (class->type != ZEND_USER_CLASS || strncmp(ZSTR_VAL(class->name), own, sizeof own - 1) == 0) {
		return;
	}
	zend_string *name;
	zend_property_info *property;
	zend_function *function;
	ZEND_HASH_FOREACH_STR_KEY_PTR(&class->properties_info, name, property) {
		if ((property->flags & ZEND_ACC_STATIC) != 0 && property->ce == class) {
			add((place_t) {.kind = PROPERTY, .name = name, .class = class, .at = property->offset});
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
		add_variables(function, class);
	} ZEND_HASH_FOREACH_END();
}

/* An alias, or a class that is not linked yet, has another key than its name. */
static bool is_own_key(const Bucket *bucket, const zend_string *name)
{
	return bucket->key != NULL && ZSTR_LEN(bucket->key) == ZSTR_LEN(name) && ZSTR_VAL(bucket->key)[0] != '\0'
		&& zend_binary_strcasecmp(ZSTR_VAL(bucket->key), ZSTR_LEN(bucket->key), ZSTR_VAL(name), ZSTR_LEN(name)) == 0;
}

/* Classes and functions that came since the last time. */
static void find_code(void)
{
	for (; classes_seen < EG(class_table)->nNumUsed; classes_seen++) {
		const Bucket *bucket = &EG(class_table)->arData[classes_seen];
		if (Z_TYPE(bucket->val) == IS_PTR && is_own_key(bucket, ((zend_class_entry *) Z_PTR(bucket->val))->name)) {
			add_class(Z_PTR(bucket->val));
		}
	}
	for (; functions_seen < EG(function_table)->nNumUsed; functions_seen++) {
		const Bucket *bucket = &EG(function_table)->arData[functions_seen];
		if (Z_TYPE(bucket->val) == IS_PTR) {
			add_variables(Z_PTR(bucket->val), NULL);
		}
	}
}

static bool is_superglobal(const zend_string *name)
{
	static const char *const names[] = {
		"_GET", "_POST", "_COOKIE", "_FILES", "_SERVER", "_ENV", "_REQUEST", "_SESSION", "GLOBALS", "argv", "argc",
		"http_response_header",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (ZSTR_LEN(name) == strlen(names[i]) && memcmp(ZSTR_VAL(name), names[i], ZSTR_LEN(name)) == 0) {
			return true;
		}
	}
	return false;
}

static void find_globals_since(void)
{
	zend_string *name;
	ZEND_HASH_FOREACH_STR_KEY(&EG(symbol_table), name) {
		if (name != NULL && !is_superglobal(name) && !zend_hash_exists(&globals, name)) {
			zend_hash_add_empty_element(&globals, name);
			add((place_t) {.kind = GLOBAL, .name = name});
		}
	} ZEND_HASH_FOREACH_END();
}

/* ---- Looking ---- */

void leaks_watch(zend_long one_of, bool settings_too)
{
	leaks_forget();
	zend_hash_init(&globals, 32, NULL, NULL, false);
	zend_hash_init(&pairs, 32, NULL, NULL, false);
	zend_hash_init(&destructors, 8, NULL, NULL, false);
	has_tables = true;
	every = MAX(one_of, 1);
	with_settings = settings_too;
	is_watching = true;
	find_code();
	find_globals_since();
	for (uint32_t i = 0; settings_too && i < sizeof settings / sizeof *settings; i++) {
		add((place_t) {.kind = SETTING, .at = i});
	}
}

static zend_string *name_of(const place_t *place)
{
	const char *name = place->name == NULL ? "" : ZSTR_VAL(place->name);
	if (place->kind == PROPERTY) {
		return zend_strpprintf(0, "%s::$%s", ZSTR_VAL(place->class->name), name);
	}
	if (place->kind == VARIABLE) {
		const char *class = place->class == NULL ? "" : ZSTR_VAL(place->class->name);
		const char *between = place->class == NULL ? "" : "::";
		return zend_strpprintf(0, "static $%s of %s%s%s()", name, class, between, ZSTR_VAL(place->function->function_name));
	}
	return place->kind == GLOBAL ? zend_strpprintf(0, "global $%s", name) : zend_strpprintf(0, "%s", settings[place->at]);
}

static void tell(const place_t *place, zval *found)
{
	zval one;
	array_init_size(&one, 5);
	add_next_index_str(&one, name_of(place));
	if (place->kind == PROPERTY) {
		add_next_index_str(&one, zend_string_copy(place->class->info.user.filename));
		add_next_index_long(&one, place->class->info.user.line_start);
	} else if (place->kind == VARIABLE) {
		add_next_index_str(&one, zend_string_copy(place->function->filename));
		add_next_index_long(&one, place->function->line_start);
	} else {
		add_next_index_string(&one, "");
		add_next_index_long(&one, place->at);
	}
	if (place->kind == SETTING) {
		add_next_index_string(&one, "");
		add_next_index_string(&one, "");
	} else {
		add_next_index_str(&one, describe(&place->first));
		add_next_index_str(&one, describe(&place->now));
	}
	add_next_index_zval(found, &one);
}

static void forget_pairs(void)
{
	zend_hash_clean(&pairs);
	for (uint32_t i = 0; i < count; i++) {
		places[i].is_suspect = false;
	}
}

/* A place that a call of this route has changed, or not. */
static void judge(uint32_t which, bool is_changed, uint64_t route, zval *found)
{
	place_t *place = &places[which];
	const zend_ulong pair = (zend_ulong) mix(route, which);
	if (!is_changed) {
		if (place->is_suspect) {
			zend_hash_index_del(&pairs, pair);
		}
		return;
	}
	if (zend_hash_num_elements(&pairs) >= MOST_PAIRS) {
		forget_pairs();
	}
	zval *times = zend_hash_index_find(&pairs, pair);
	if (times == NULL) {
		zval none;
		ZVAL_LONG(&none, 0);
		times = zend_hash_index_add_new(&pairs, pair, &none);
	}
	place->is_suspect = true;
	Z_LVAL_P(times)++;
	if (Z_LVAL_P(times) >= TIMES) {
		place->is_told = true;
		tell(place, found);
	}
}

static bool counts_call(void)
{
	calls++;
	/* With the one before, so that what is found is of one call. */
	return calls % every == 0 || calls % every == every - 1;
}

bool leaks_due(void)
{
	if (UNEXPECTED(is_watching)) {
		is_due = counts_call();
	}
	return is_due;
}

void leaks_look(zend_string *route, zval *found)
{
	array_init(found);
	if (!is_watching || (!is_due && !counts_call())) {
		return;
	}
	is_due = false;
	const bool judges = every == 1 || calls % every == 0;
	const uint32_t known = count;
	for (uint32_t i = 0; i < known; i++) {
		if (!places[i].is_told) {
			const uint64_t before = places[i].print;
			look_at(&places[i]);
			if (judges) {
				judge(i, places[i].print != before, ZSTR_HASH(route), found);
			}
		}
	}
	/* What came with this call is looked at from now on. */
	find_code();
	find_globals_since();
}

/* ---- Circles ---- */

static bool has_destructor_to_run(const zend_object *object)
{
	return IS_OBJ_VALID(object) && (GC_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) == 0
		&& object->ce->type == ZEND_USER_CLASS && object->ce->destructor != NULL;
}

static void tell_destructor(const zend_class_entry *class, zval *found)
{
	const zend_ulong address = (zend_ulong) (uintptr_t) class;
	if (class->destructor->type != ZEND_USER_FUNCTION || !zend_hash_index_add_empty_element(&destructors, address)) {
		return;
	}
	const zend_op_array *code = &class->destructor->op_array;
	zval one;
	array_init_size(&one, 3);
	add_next_index_str(&one, zend_strpprintf(0, "%s::__destruct()", ZSTR_VAL(class->name)));
	add_next_index_str(&one, zend_string_copy(code->filename));
	add_next_index_long(&one, code->line_start);
	add_next_index_zval(found, &one);
}

void leaks_collect(zval *found)
{
	array_init(found);
	if (!is_watching || every != 1) {
		return;
	}
	typedef struct {
		uint32_t handle;
		const zend_object *object;
		const zend_class_entry *class;
	} waiting_t;
	const zend_objects_store *store = &EG(objects_store);
	waiting_t *waiting = safe_emalloc(store->top, sizeof *waiting, 0);
	uint32_t number = 0;
	for (uint32_t handle = 1; handle < store->top; handle++) {
		const zend_object *object = store->object_buckets[handle];
		if (has_destructor_to_run(object)) {
			waiting[number++] = (waiting_t) {.handle = handle, .object = object, .class = object->ce};
		}
	}
	zend_gc_collect_cycles();
	for (uint32_t i = 0; i < number; i++) {
		const zend_object *object = store->object_buckets[waiting[i].handle];
		if (object != waiting[i].object || !has_destructor_to_run(object)) {
			tell_destructor(waiting[i].class, found);
		}
	}
	efree(waiting);
}

void leaks_forget(void)
{
	if (has_tables) {
		zend_hash_destroy(&globals);
		zend_hash_destroy(&pairs);
		zend_hash_destroy(&destructors);
	}
	if (places != NULL) {
		pefree(places, true);
	}
	places = NULL;
	count = room = classes_seen = functions_seen = 0;
	has_tables = is_watching = is_due = false;
	calls = 0;
}
