/* The variables of a module of PHP's. */
#ifndef PRONGHORN_MODULE_GLOBALS_H
#define PRONGHORN_MODULE_GLOBALS_H

#include "php.h"
#include "zend_modules.h"

/* NULL: the module is not there, or its variables have another size than was expected. Found by the
 * module's entry, because a module that is a file of its own can't be linked to. */
static inline void *module_globals(const char *name, size_t size)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));
	if (module == NULL || module->globals_size != size) {
		return NULL;
	}
#ifdef ZTS
	return ts_resource(*module->globals_id_ptr);
#else
	return module->globals_ptr;
#endif
}

#endif
