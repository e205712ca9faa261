/* From pronghorn.stub.php, by hand; tests/functions.phpt compares. */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ring_attach, 0, 4, IS_STRING, 1)
	ZEND_ARG_TYPE_INFO(0, memory, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, page, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, bell, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, server, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ring_read, 0, 1, IS_STRING, 1)
	ZEND_ARG_TYPE_INFO(0, most, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ring_readable, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ring_write, 0, 2, _IS_BOOL, 1)
	ZEND_ARG_TYPE_INFO(0, bytes, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(1, sent, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_FUNCTION(ring_attach);
ZEND_FUNCTION(ring_read);
ZEND_FUNCTION(ring_readable);
ZEND_FUNCTION(ring_write);

static const zend_function_entry ext_functions[] = {
	ZEND_NS_FE("Pronghorn\\Internal", ring_attach, arginfo_ring_attach)
	ZEND_NS_FE("Pronghorn\\Internal", ring_read, arginfo_ring_read)
	ZEND_NS_FE("Pronghorn\\Internal", ring_readable, arginfo_ring_readable)
	ZEND_NS_FE("Pronghorn\\Internal", ring_write, arginfo_ring_write)
	ZEND_FE_END
};
