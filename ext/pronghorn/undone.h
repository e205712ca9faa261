/* What a restore of objects and of static properties have in common. */
#ifndef PRONGHORN_UNDONE_H
#define PRONGHORN_UNDONE_H

#include "php.h"

/* What goes when values go back. */
typedef struct {
	/* Destroyed when all is back: destructors are code that may look. */
	zval dropped;
	/* Destructors may have changed as much again. */
	bool has_changed;
} undone;

/* Levels of arrays in arrays; one may contain itself. */
#define UNDONE_DEPTH 8

static inline bool is_same(const zval *a, const zval *b)
{
	return Z_TYPE_INFO_P(a) == Z_TYPE_INFO_P(b) && (Z_TYPE_P(a) <= IS_TRUE || Z_LVAL_P(a) == Z_LVAL_P(b));
}

/* Code that looks something up may put it into an array and take it out again, and leave another
 * array with the same in it. Nothing has a destructor there that is not in the other one, too. */
static bool is_copy(const zval *a, const zval *b, int depth)
{
	if (is_same(a, b)) {
		return true;
	}
	if (Z_TYPE_P(a) == IS_STRING && Z_TYPE_P(b) == IS_STRING) {
		return zend_string_equals(Z_STR_P(a), Z_STR_P(b));
	}
	if (Z_TYPE_P(a) != IS_ARRAY || Z_TYPE_P(b) != IS_ARRAY || depth == 0
		|| zend_hash_num_elements(Z_ARRVAL_P(a)) != zend_hash_num_elements(Z_ARRVAL_P(b))) {
		return false;
	}
	zend_string *name;
	zend_ulong number;
	zval *value;
	ZEND_HASH_FOREACH_KEY_VAL(Z_ARRVAL_P(a), number, name, value) {
		const zval *other = name != NULL ? zend_hash_find(Z_ARRVAL_P(b), name) : zend_hash_index_find(Z_ARRVAL_P(b), number);
		if (other == NULL || !is_copy(value, other, depth - 1)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

static void drop(undone *undone, const zval *value)
{
	if (!Z_REFCOUNTED_P(value)) {
		return;
	}
	if (Z_TYPE(undone->dropped) == IS_UNDEF) {
		array_init(&undone->dropped);
	}
	zval copy;
	ZVAL_COPY_VALUE(&copy, value);
	zend_hash_next_index_insert_new(Z_ARRVAL(undone->dropped), &copy);
}

#endif
