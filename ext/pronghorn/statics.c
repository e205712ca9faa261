#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "statics.h"
#include "undone.h"
#include "zend_exceptions.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

/* A static property, and what it goes back to. */
typedef struct {
	zend_class_entry *class;
	uint32_t at;
	/* Undefined: a typed one had no value. */
	zval value;
	/* It goes back to what the class declares, which is not evaluated yet. */
	bool is_declared;
} place;

typedef struct {
	/* Beginnings of the names of classes. */
	zval of, without;
	place *places;
	uint32_t count, room;
	/* Of the table of classes: what came later is looked for behind it. */
	uint32_t seen;
	/* Classes that have places. */
	HashTable known;
	/* Where classes lie there that were not linked yet. */
	HashTable unlinked;
	zend_object std;
} kept;

static zend_object_handlers handlers;

static kept *kept_of(zend_object *object)
{
	return (kept *) ((char *) object - offsetof(kept, std));
}

/* ---- Which ---- */

static bool begins(const zend_string *name, const zval *prefixes)
{
	const zval *prefix;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(prefixes), prefix) {
		if (Z_TYPE_P(prefix) == IS_STRING && ZSTR_LEN(name) >= Z_STRLEN_P(prefix)
			&& memcmp(ZSTR_VAL(name), Z_STRVAL_P(prefix), Z_STRLEN_P(prefix)) == 0) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

/* NULL: nobody has used them yet, so they are as the class declares them. */
static zval *values_of(zend_class_entry *class)
{
	return ZEND_MAP_PTR(class->static_members_table) == NULL ? NULL : CE_STATIC_MEMBERS(class);
}

static void add(kept *this, zend_class_entry *class, uint32_t at, bool is_new)
{
	if (this->count == this->room) {
		this->room = this->room == 0 ? 64 : 2 * this->room;
		this->places = safe_erealloc(this->places, this->room, sizeof *this->places, 0);
	}
	place *added = &this->places[this->count++];
	*added = (place) {.class = class, .at = at};
	ZVAL_UNDEF(&added->value);
	zval *values = is_new ? NULL : values_of(class);
	added->is_declared = values == NULL;
	if (values != NULL) {
		ZVAL_COPY_DEREF(&added->value, &values[at]);
	}
}

static void add_class(kept *this, zend_class_entry *class, bool is_new)
{
	if (class->type != ZEND_USER_CLASS || class->default_static_members_count == 0 || (class->ce_flags & ZEND_ACC_TRAIT) != 0
		|| !begins(class->name, &this->of) || begins(class->name, &this->without)
		|| zend_hash_index_exists(&this->known, (zend_ulong) (uintptr_t) class)) {
		return;
	}
	zend_hash_index_add_empty_element(&this->known, (zend_ulong) (uintptr_t) class);
	const zend_property_info *property;
	ZEND_HASH_FOREACH_PTR(&class->properties_info, property) {
		/* A parent has its own. */
		if ((property->flags & ZEND_ACC_STATIC) != 0 && property->ce == class) {
			add(this, class, property->offset, is_new);
		}
	} ZEND_HASH_FOREACH_END();
}

/* A class that is declared in the middle of a file lies there under another key until then. */
static bool is_linked(const Bucket *bucket, const zend_class_entry *class)
{
	return bucket->key != NULL && ZSTR_VAL(bucket->key)[0] != '\0' && (class->ce_flags & ZEND_ACC_LINKED) != 0;
}

static bool look_at(kept *this, uint32_t at, bool is_new)
{
	const Bucket *bucket = &EG(class_table)->arData[at];
	if (Z_TYPE(bucket->val) != IS_PTR) {
		return true;
	}
	if (!is_linked(bucket, Z_PTR(bucket->val))) {
		return false;
	}
	add_class(this, Z_PTR(bucket->val), is_new);
	return true;
}

/* Classes that came since the last time. */
static void find(kept *this, bool is_new)
{
	if (EG(class_table)->nNumUsed < this->seen) {
		/* The table was packed. */
		this->seen = 0;
		zend_hash_clean(&this->unlinked);
	}
	zend_ulong at;
	ZEND_HASH_FOREACH_NUM_KEY(&this->unlinked, at) {
		if (look_at(this, (uint32_t) at, is_new)) {
			zend_hash_index_del(&this->unlinked, at);
		}
	} ZEND_HASH_FOREACH_END();
	for (; this->seen < EG(class_table)->nNumUsed; this->seen++) {
		if (!look_at(this, this->seen, is_new)) {
			zend_hash_index_add_empty_element(&this->unlinked, this->seen);
		}
	}
}

static void expect_texts(const zval *prefixes, uint32_t number)
{
	const zval *prefix;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(prefixes), prefix) {
		if (Z_TYPE_P(prefix) != IS_STRING) {
			zend_argument_type_error(number, "must be a list of strings, %s in it", zend_zval_type_name(prefix));
			return;
		}
	} ZEND_HASH_FOREACH_END();
}

ZEND_METHOD(Pronghorn_Internal_NativeStatics, __construct)
{
	zval *of, *without;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_ARRAY(of)
		Z_PARAM_ARRAY(without)
	ZEND_PARSE_PARAMETERS_END();

	kept *this = kept_of(Z_OBJ_P(ZEND_THIS));
	if (Z_TYPE(this->of) != IS_UNDEF) {
		zend_throw_error(NULL, "It has them already");
		RETURN_THROWS();
	}
	expect_texts(of, 1);
	expect_texts(without, 2);
	if (EG(exception) != NULL) {
		RETURN_THROWS();
	}
	ZVAL_COPY(&this->of, of);
	ZVAL_COPY(&this->without, without);
	find(this, false);
}

static void add_objects(const zval *value, zval *objects, int depth)
{
	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) == IS_OBJECT) {
		zval copy;
		ZVAL_COPY(&copy, value);
		zend_hash_next_index_insert_new(Z_ARRVAL_P(objects), &copy);
	} else if (Z_TYPE_P(value) == IS_ARRAY && depth > 0) {
		const zval *inner;
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), inner) {
			add_objects(inner, objects, depth - 1);
		} ZEND_HASH_FOREACH_END();
	}
}

ZEND_METHOD(Pronghorn_Internal_NativeStatics, objects)
{
	ZEND_PARSE_PARAMETERS_NONE();

	const kept *this = kept_of(Z_OBJ_P(ZEND_THIS));
	array_init(return_value);
	for (uint32_t i = 0; i < this->count; i++) {
		add_objects(&this->places[i].value, return_value, UNDONE_DEPTH - 1);
	}
}

/* ---- And back ---- */

/* False: it can't be evaluated. */
static bool evaluate(place *of)
{
	ZVAL_COPY(&of->value, &of->class->default_static_members_table[of->at]);
	if (Z_TYPE(of->value) == IS_CONSTANT_AST && zval_update_constant_ex(&of->value, of->class) == FAILURE) {
		zend_clear_exception();
		zval_ptr_dtor(&of->value);
		ZVAL_UNDEF(&of->value);
		return false;
	}
	of->is_declared = false;
	return true;
}

static zend_property_info *info_of(const place *of)
{
	zend_property_info *info;
	ZEND_HASH_FOREACH_PTR(&of->class->properties_info, info) {
		if ((info->flags & ZEND_ACC_STATIC) != 0 && info->ce == of->class && info->offset == of->at) {
			return info;
		}
	} ZEND_HASH_FOREACH_END();
	return NULL;
}

static void restore(place *of, undone *undone)
{
	zval *values = values_of(of->class);
	if (values == NULL || (of->is_declared && !evaluate(of))) {
		return;
	}
	zval *value = &values[of->at];
	if (Z_ISREF_P(value) && Z_TYPE(of->value) == IS_UNDEF) {
		zend_property_info *info = info_of(of);
		if (info != NULL && ZEND_TYPE_IS_SET(info->type)) {
			ZEND_REF_DEL_TYPE_SOURCE(Z_REF_P(value), info);
		}
	} else if (Z_ISREF_P(value)) {
		/* Who else has the reference gets the value as well. */
		zend_reference *reference = Z_REF_P(value);
		value = Z_REFVAL_P(value);
		if (ZEND_REF_HAS_TYPE_SOURCES(reference) && !is_same(value, &of->value)) {
			zval copy;
			ZVAL_COPY(&copy, &of->value);
			undone->has_changed |= !is_copy(value, &of->value, UNDONE_DEPTH);
			zend_try_assign_typed_ref_zval_ex(reference, &copy, true);
			return;
		}
	}
	if (is_same(value, &of->value)) {
		return;
	}
	undone->has_changed |= !is_copy(value, &of->value, UNDONE_DEPTH);
	drop(undone, value);
	ZVAL_COPY(value, &of->value);
}

ZEND_METHOD(Pronghorn_Internal_NativeStatics, restore)
{
	ZEND_PARSE_PARAMETERS_NONE();

	kept *this = kept_of(Z_OBJ_P(ZEND_THIS));
	undone undone = {.has_changed = false};
	ZVAL_UNDEF(&undone.dropped);
	find(this, true);
	for (uint32_t i = 0; i < this->count; i++) {
		restore(&this->places[i], &undone);
	}
	zval_ptr_dtor(&undone.dropped);
	RETURN_BOOL(undone.has_changed);
}

/* ---- The object that has them ---- */

static zend_object *create(zend_class_entry *class)
{
	kept *this = zend_object_alloc(sizeof *this, class);
	memset(this, 0, offsetof(kept, std));
	ZVAL_UNDEF(&this->of);
	ZVAL_UNDEF(&this->without);
	zend_hash_init(&this->known, 0, NULL, NULL, false);
	zend_hash_init(&this->unlinked, 0, NULL, NULL, false);
	zend_object_std_init(&this->std, class);
	object_properties_init(&this->std, class);
	this->std.handlers = &handlers;
	return &this->std;
}

static void destroy(zend_object *object)
{
	kept *this = kept_of(object);
	for (uint32_t i = 0; i < this->count; i++) {
		zval_ptr_dtor(&this->places[i].value);
	}
	if (this->places != NULL) {
		efree(this->places);
	}
	zend_hash_destroy(&this->known);
	zend_hash_destroy(&this->unlinked);
	zval_ptr_dtor(&this->of);
	zval_ptr_dtor(&this->without);
	zend_object_std_dtor(object);
}

void statics_startup(zend_class_entry *class)
{
	class->create_object = create;
	memcpy(&handlers, &std_object_handlers, sizeof handlers);
	handlers.offset = offsetof(kept, std);
	handlers.free_obj = destroy;
	handlers.clone_obj = NULL;
}
