/* Static properties of classes as they were, and the way back there: Pronghorn\Statics with this
 * extension. */
#ifndef PRONGHORN_STATICS_H
#define PRONGHORN_STATICS_H

#include "php.h"

/* Once for the process, with the class that has them. */
void statics_startup(zend_class_entry *kept);

#endif
