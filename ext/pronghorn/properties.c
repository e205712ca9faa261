#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "properties.h"
#include "undone.h"

#include "zend_attributes.h"

#if PHP_VERSION_ID >= 80400
#include "zend_lazy_objects.h"
#endif

/* For each object, one after the other: the object, the properties that no class declares (an
 * array; null when there were none; undefined where nobody looks), and what each slot of its
 * properties held. */
typedef struct {
	zval *values;
	uint32_t count;
	zend_object std;
} kept;

#define BEFORE_SLOTS 2

static zend_object_handlers handlers;

static kept *kept_of(zend_object *object)
{
	return (kept *) ((char *) object - offsetof(kept, std));
}

static uint32_t slots_of(const zend_object *object)
{
	return object->ce->default_properties_count;
}

/* Those of classes that are written in PHP, and that may change. */
static bool is_ours(const zend_property_info *info)
{
	return info != NULL && info->ce->type == ZEND_USER_CLASS && !(info->flags & ZEND_ACC_READONLY);
}

/* ---- Take ---- */

static bool is_declared(const zval *property)
{
	return Z_TYPE_P(property) == IS_INDIRECT;
}

static bool allows_others(const zend_class_entry *class)
{
	while (class != NULL && class != zend_standard_class_def) {
		if (zend_get_attribute_str(class->attributes, ZEND_STRL("allowdynamicproperties")) != NULL) {
			return true;
		}
		class = class->parent;
	}
	return class != NULL;
}

static void keep_others(const zend_object *object, zval *others)
{
	ZVAL_UNDEF(others);
	if (allows_others(object->ce)) {
		ZVAL_NULL(others);
	}
	if (object->properties == NULL) {
		return;
	}
	zend_string *name;
	zend_ulong number;
	zval *property;
	ZEND_HASH_FOREACH_KEY_VAL(object->properties, number, name, property) {
		if (is_declared(property)) {
			continue;
		}
		if (Z_TYPE_P(others) != IS_ARRAY) {
			array_init(others);
		}
		zval value;
		ZVAL_COPY_DEREF(&value, property);
		name != NULL ? zend_hash_update(Z_ARRVAL_P(others), name, &value) : zend_hash_index_update(Z_ARRVAL_P(others), number, &value);
	} ZEND_HASH_FOREACH_END();
}

static void keep(zend_object *object, zval *values)
{
	ZVAL_OBJ_COPY(&values[0], object);
	keep_others(object, &values[1]);
	for (uint32_t i = 0; i < slots_of(object); i++) {
		zval *slot = &object->properties_table[i], *value = &values[BEFORE_SLOTS + i];
		ZVAL_COPY_DEREF(value, slot);
		Z_PROP_FLAG_P(value) = Z_PROP_FLAG_P(slot);
	}
}

/* One that is still to be made is made, and a proxy is what it stands for. Null: that threw. */
static zend_object *itself(zend_object *object)
{
#if PHP_VERSION_ID >= 80400
	if (zend_object_is_lazy(object)) {
		return zend_lazy_object_init(object);
	}
#endif
	return object;
}

ZEND_METHOD(Pronghorn_Internal_NativeProperties, __construct)
{
	zend_array *objects;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ARRAY_HT(objects)
	ZEND_PARSE_PARAMETERS_END();

	kept *this = kept_of(Z_OBJ_P(ZEND_THIS));
	zval *value;
	ZEND_HASH_FOREACH_VAL(objects, value) {
		ZVAL_DEREF(value);
		if (Z_TYPE_P(value) != IS_OBJECT) {
			zend_argument_type_error(1, "must be a list of objects, %s in it", zend_zval_type_name(value));
			RETURN_THROWS();
		}
		zend_object *object = itself(Z_OBJ_P(value));
		if (object == NULL) {
			RETURN_THROWS();
		}
		uint32_t more = BEFORE_SLOTS + slots_of(object);
		this->values = safe_erealloc(this->values, this->count + more, sizeof *this->values, 0);
		keep(object, this->values + this->count);
		this->count += more;
	} ZEND_HASH_FOREACH_END();
}

/* ---- And back ---- */

static zend_property_info *info_of(zend_object *object, uint32_t number)
{
#if PHP_VERSION_ID >= 80400
	/* A property that gets hooks in a subclass has another slot there, which the table does not
	 * know. */
	return zend_get_property_info_for_slot_self(object, &object->properties_table[number]);
#else
	return object->ce->properties_info_table[number];
#endif
}

static void restore_slot(zend_object *object, uint32_t number, const zval *value, undone *undone)
{
	zval *slot = &object->properties_table[number];
	if (is_same(slot, value) || (Z_ISREF_P(slot) && is_same(Z_REFVAL_P(slot), value))) {
		return;
	}
	zend_property_info *info = info_of(object, number);
	if (!is_ours(info)) {
		return;
	}
	undone->has_changed |= !is_copy(Z_ISREF_P(slot) ? Z_REFVAL_P(slot) : slot, value, UNDONE_DEPTH);
	if (Z_ISREF_P(slot) && Z_TYPE_P(value) == IS_UNDEF) {
		if (ZEND_TYPE_IS_SET(info->type)) {
			ZEND_REF_DEL_TYPE_SOURCE(Z_REF_P(slot), info);
		}
	} else if (Z_ISREF_P(slot)) {
		if (ZEND_REF_HAS_TYPE_SOURCES(Z_REF_P(slot))) {
			zval copy;
			ZVAL_COPY(&copy, value);
			zend_try_assign_typed_ref_zval_ex(Z_REF_P(slot), &copy, true);
			return;
		}
		slot = Z_REFVAL_P(slot);
	}
	drop(undone, slot);
	ZVAL_COPY_PROP(slot, value);
}

static bool are_same(zend_object *object, const zval *others)
{
	if (object->properties == NULL) {
		return Z_TYPE_P(others) == IS_NULL;
	}
	uint32_t count = 0;
	zend_string *name;
	zend_ulong number;
	zval *property;
	ZEND_HASH_FOREACH_KEY_VAL(object->properties, number, name, property) {
		if (is_declared(property)) {
			continue;
		}
		count++;
		const zval *kept = NULL;
		if (Z_TYPE_P(others) == IS_ARRAY) {
			kept = name != NULL ? zend_hash_find(Z_ARRVAL_P(others), name) : zend_hash_index_find(Z_ARRVAL_P(others), number);
		}
		/* One that nobody shares is left by a function that took the property by reference. */
		const zval *value = Z_ISREF_P(property) && Z_REFCOUNT_P(property) == 1 ? Z_REFVAL_P(property) : property;
		if (kept == NULL || !is_copy(value, kept, UNDONE_DEPTH)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return count == (Z_TYPE_P(others) == IS_ARRAY ? zend_hash_num_elements(Z_ARRVAL_P(others)) : 0);
}

static void restore_others(zend_object *object, const zval *others, undone *undone)
{
	if (Z_TYPE_P(others) == IS_UNDEF || are_same(object, others)) {
		return;
	}
	undone->has_changed = true;
	zend_array *now = zend_std_get_properties(object);
	if (GC_REFCOUNT(now) > 1) {
		if (!(GC_FLAGS(now) & IS_ARRAY_IMMUTABLE)) {
			GC_DELREF(now);
		}
		now = object->properties = zend_array_dup(now);
	}
	zend_string *name;
	zend_ulong number;
	zval *property;
	ZEND_HASH_FOREACH_KEY_VAL(now, number, name, property) {
		if (is_declared(property)) {
			continue;
		}
		zval gone;
		ZVAL_COPY(&gone, property);
		drop(undone, &gone);
		name != NULL ? zend_hash_del(now, name) : zend_hash_index_del(now, number);
	} ZEND_HASH_FOREACH_END();
	if (Z_TYPE_P(others) == IS_ARRAY) {
		zend_hash_copy(now, Z_ARRVAL_P(others), zval_add_ref);
	}
}

ZEND_METHOD(Pronghorn_Internal_NativeProperties, restore)
{
	ZEND_PARSE_PARAMETERS_NONE();

	const kept *this = kept_of(Z_OBJ_P(ZEND_THIS));
	undone undone = {.has_changed = false};
	ZVAL_UNDEF(&undone.dropped);
	for (uint32_t i = 0; i < this->count;) {
		zend_object *object = Z_OBJ(this->values[i]);
		restore_others(object, &this->values[i + 1], &undone);
		i += BEFORE_SLOTS;
		for (uint32_t number = 0; number < slots_of(object); number++, i++) {
			restore_slot(object, number, &this->values[i], &undone);
		}
	}
	zval_ptr_dtor(&undone.dropped);
	RETURN_BOOL(undone.has_changed);
}

/* ---- The object that has them ---- */

static zend_object *create(zend_class_entry *class)
{
	kept *this = zend_object_alloc(sizeof *this, class);
	this->values = NULL;
	this->count = 0;
	zend_object_std_init(&this->std, class);
	object_properties_init(&this->std, class);
	this->std.handlers = &handlers;
	return &this->std;
}

static void destroy(zend_object *object)
{
	kept *this = kept_of(object);
	for (uint32_t i = 0; i < this->count; i++) {
		zval_ptr_dtor(&this->values[i]);
	}
	if (this->values != NULL) {
		efree(this->values);
	}
	zend_object_std_dtor(object);
}

static HashTable *what_it_holds(zend_object *object, zval **values, int *count)
{
	*values = kept_of(object)->values;
	*count = (int) kept_of(object)->count;
	return NULL;
}

void properties_startup(zend_class_entry *class)
{
	class->create_object = create;
	memcpy(&handlers, &std_object_handlers, sizeof handlers);
	handlers.offset = offsetof(kept, std);
	handlers.free_obj = destroy;
	handlers.get_gc = what_it_holds;
	handlers.clone_obj = NULL;
}
