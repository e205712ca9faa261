/* Properties of objects as they were, and the way back there: Pronghorn\Snapshot with this
 * extension. */
#ifndef PRONGHORN_PROPERTIES_H
#define PRONGHORN_PROPERTIES_H

#include "php.h"

/* Once for the process, with the class that has them. */
void properties_startup(zend_class_entry *kept);

#endif
