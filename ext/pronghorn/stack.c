#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "stack.h"

#include <stddef.h>
#include <string.h>

#include "php.h"

#include "ring_layout.h"

void stack_publish(unsigned char *at)
{
	/* In the order of crates/ring/src/stack.rs. */
	const uint64_t numbers[RING_STACK] = {
		(uint64_t) (uintptr_t) &EG(current_execute_data),
		offsetof(zend_execute_data, opline),
		offsetof(zend_execute_data, func),
		offsetof(zend_execute_data, prev_execute_data),
		offsetof(zend_op, lineno),
		offsetof(zend_function, common.function_name),
		offsetof(zend_function, common.scope),
		offsetof(zend_function, op_array.filename),
		offsetof(zend_class_entry, name),
		offsetof(zend_string, len),
		offsetof(zend_string, val),
	};
	memcpy(at, numbers, sizeof numbers);
}
