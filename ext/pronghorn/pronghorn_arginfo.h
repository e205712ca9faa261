/* This is a generated file, edit the .stub.php file instead.
 * Stub hash: 6f8004d077ef277a75b27c33d05ff034f00bad61 */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_attach, 0, 9, IS_STRING, 1)
	ZEND_ARG_TYPE_INFO(0, memory, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, page, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, bell, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, server, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, output, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, look_after, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, http, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, raw, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, grpc, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_zygote_serve, 0, 2, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, control, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, is_warm, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_Pronghorn_Internal_ring_next, 0, 0, MAY_BE_OBJECT|MAY_BE_STRING|MAY_BE_NULL)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_Pronghorn_Internal_ring_serve, 0, 6, MAY_BE_OBJECT|MAY_BE_ARRAY|MAY_BE_STRING|MAY_BE_NULL)
	ZEND_ARG_TYPE_INFO(0, http, IS_CALLABLE, 1)
	ZEND_ARG_TYPE_INFO(0, raw, IS_CALLABLE, 1)
	ZEND_ARG_TYPE_INFO(0, grpc, IS_CALLABLE, 1)
	ZEND_ARG_TYPE_INFO(0, failed, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO(0, output, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, response, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_peek, 0, 0, IS_STRING, 1)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_reply, 0, 6, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, call, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, status, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, headers, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, body, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, flags, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, more, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_message, 0, 7, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, kind, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, call, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, flags, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, small, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, context, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, body, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, more, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_ask, 0, 3, _IS_BOOL, 1)
	ZEND_ARG_TYPE_INFO(0, number, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, method, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, argument, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_Pronghorn_Internal_ring_answer, 0, 1, MAY_BE_ARRAY|MAY_BE_STRING|MAY_BE_NULL)
	ZEND_ARG_TYPE_INFO(0, number, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_ring_write, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, bytes, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_native_headers, 0, 3, IS_ARRAY, 1)
	ZEND_ARG_TYPE_INFO(0, fields, IS_STRING, 1)
	ZEND_ARG_TYPE_INFO(0, host, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, count, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_until_exit, 0, 1, IS_ARRAY, 1)
	ZEND_ARG_TYPE_INFO(0, function, IS_CALLABLE, 0)
	ZEND_ARG_VARIADIC_TYPE_INFO(0, arguments, IS_MIXED, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_places_seen, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_printed_watch, 0, 2, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, output, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, response, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_printed_look_away, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_printed_take, 0, 0, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_printed_close, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, above, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_printed_settle, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_requests_take_over, 0, 4, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, front, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, form, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO(0, output, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, response, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

#define arginfo_Pronghorn_Internal_reset_keep arginfo_Pronghorn_Internal_printed_look_away

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_reset_again, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

#define arginfo_Pronghorn_Internal_reset_let_go arginfo_Pronghorn_Internal_printed_look_away

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_leaks_watch, 0, 2, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, every, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, settings, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_leaks_look, 0, 1, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, route, IS_STRING, 0)
ZEND_END_ARG_INFO()

#define arginfo_Pronghorn_Internal_leaks_collect arginfo_Pronghorn_Internal_places_seen

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_request_begin, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, exchange, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_request_serve, 0, 2, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, exchange, IS_OBJECT, 0)
	ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

#define arginfo_Pronghorn_Internal_request_end arginfo_Pronghorn_Internal_printed_look_away

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_Pronghorn_Internal_request_last, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, tell, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_class_Pronghorn_Internal_NativeProperties___construct, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, objects, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Internal_NativeProperties_restore, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_class_Pronghorn_Internal_NativeStatics___construct, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, of, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, without, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Internal_NativeStatics_objects, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

#define arginfo_class_Pronghorn_Internal_NativeStatics_restore arginfo_class_Pronghorn_Internal_NativeProperties_restore

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_get, 0, 1, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, default, IS_MIXED, 0, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_many, 0, 1, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, keys, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_set, 0, 2, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, ttl, IS_DOUBLE, 1, "null")
ZEND_END_ARG_INFO()

#define arginfo_class_Pronghorn_Cache_Store_add arginfo_class_Pronghorn_Cache_Store_set

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_delete, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_increment, 0, 1, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, by, IS_LONG, 0, "1")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, ttl, IS_DOUBLE, 1, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_compareAndSwap, 0, 3, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, old, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO(0, new, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, ttl, IS_DOUBLE, 1, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_Store_clear, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, prefix, IS_STRING, 0, "\"\"")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_class_Pronghorn_Cache_SharedMemory___construct, 0, 0, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_class_Pronghorn_Cache_SharedMemory_open, 0, 1, Pronghorn\\Cache\\SharedMemory, 1)
	ZEND_ARG_TYPE_INFO(0, storage, IS_STRING, 0)
ZEND_END_ARG_INFO()

#define arginfo_class_Pronghorn_Cache_SharedMemory_get arginfo_class_Pronghorn_Cache_Store_get

#define arginfo_class_Pronghorn_Cache_SharedMemory_many arginfo_class_Pronghorn_Cache_Store_many

#define arginfo_class_Pronghorn_Cache_SharedMemory_set arginfo_class_Pronghorn_Cache_Store_set

#define arginfo_class_Pronghorn_Cache_SharedMemory_add arginfo_class_Pronghorn_Cache_Store_add

#define arginfo_class_Pronghorn_Cache_SharedMemory_delete arginfo_class_Pronghorn_Cache_Store_delete

#define arginfo_class_Pronghorn_Cache_SharedMemory_increment arginfo_class_Pronghorn_Cache_Store_increment

#define arginfo_class_Pronghorn_Cache_SharedMemory_compareAndSwap arginfo_class_Pronghorn_Cache_Store_compareAndSwap

#define arginfo_class_Pronghorn_Cache_SharedMemory_clear arginfo_class_Pronghorn_Cache_Store_clear

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_class_Pronghorn_Cache_SharedMemory_longest, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()


ZEND_FUNCTION(Pronghorn_Internal_ring_attach);
ZEND_FUNCTION(Pronghorn_Internal_zygote_serve);
ZEND_FUNCTION(Pronghorn_Internal_ring_next);
ZEND_FUNCTION(Pronghorn_Internal_ring_serve);
ZEND_FUNCTION(Pronghorn_Internal_ring_peek);
ZEND_FUNCTION(Pronghorn_Internal_ring_reply);
ZEND_FUNCTION(Pronghorn_Internal_ring_message);
ZEND_FUNCTION(Pronghorn_Internal_ring_ask);
ZEND_FUNCTION(Pronghorn_Internal_ring_answer);
ZEND_FUNCTION(Pronghorn_Internal_ring_write);
ZEND_FUNCTION(Pronghorn_Internal_native_headers);
ZEND_FUNCTION(Pronghorn_Internal_until_exit);
ZEND_FUNCTION(Pronghorn_Internal_places_seen);
ZEND_FUNCTION(Pronghorn_Internal_printed_watch);
ZEND_FUNCTION(Pronghorn_Internal_printed_look_away);
ZEND_FUNCTION(Pronghorn_Internal_printed_take);
ZEND_FUNCTION(Pronghorn_Internal_printed_close);
ZEND_FUNCTION(Pronghorn_Internal_printed_settle);
ZEND_FUNCTION(Pronghorn_Internal_requests_take_over);
ZEND_FUNCTION(Pronghorn_Internal_reset_keep);
ZEND_FUNCTION(Pronghorn_Internal_reset_again);
ZEND_FUNCTION(Pronghorn_Internal_reset_let_go);
ZEND_FUNCTION(Pronghorn_Internal_leaks_watch);
ZEND_FUNCTION(Pronghorn_Internal_leaks_look);
ZEND_FUNCTION(Pronghorn_Internal_leaks_collect);
ZEND_FUNCTION(Pronghorn_Internal_request_begin);
ZEND_FUNCTION(Pronghorn_Internal_request_serve);
ZEND_FUNCTION(Pronghorn_Internal_request_end);
ZEND_FUNCTION(Pronghorn_Internal_request_last);
ZEND_METHOD(Pronghorn_Internal_NativeProperties, __construct);
ZEND_METHOD(Pronghorn_Internal_NativeProperties, restore);
ZEND_METHOD(Pronghorn_Internal_NativeStatics, __construct);
ZEND_METHOD(Pronghorn_Internal_NativeStatics, objects);
ZEND_METHOD(Pronghorn_Internal_NativeStatics, restore);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, __construct);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, open);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, get);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, many);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, set);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, add);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, delete);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, increment);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, compareAndSwap);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, clear);
ZEND_METHOD(Pronghorn_Cache_SharedMemory, longest);


static const zend_function_entry ext_functions[] = {
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_attach, Pronghorn_Internal_ring_attach, arginfo_Pronghorn_Internal_ring_attach)
	ZEND_NS_FALIAS("Pronghorn\\Internal", zygote_serve, Pronghorn_Internal_zygote_serve, arginfo_Pronghorn_Internal_zygote_serve)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_next, Pronghorn_Internal_ring_next, arginfo_Pronghorn_Internal_ring_next)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_serve, Pronghorn_Internal_ring_serve, arginfo_Pronghorn_Internal_ring_serve)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_peek, Pronghorn_Internal_ring_peek, arginfo_Pronghorn_Internal_ring_peek)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_reply, Pronghorn_Internal_ring_reply, arginfo_Pronghorn_Internal_ring_reply)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_message, Pronghorn_Internal_ring_message, arginfo_Pronghorn_Internal_ring_message)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_ask, Pronghorn_Internal_ring_ask, arginfo_Pronghorn_Internal_ring_ask)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_answer, Pronghorn_Internal_ring_answer, arginfo_Pronghorn_Internal_ring_answer)
	ZEND_NS_FALIAS("Pronghorn\\Internal", ring_write, Pronghorn_Internal_ring_write, arginfo_Pronghorn_Internal_ring_write)
	ZEND_NS_FALIAS("Pronghorn\\Internal", native_headers, Pronghorn_Internal_native_headers, arginfo_Pronghorn_Internal_native_headers)
	ZEND_NS_FALIAS("Pronghorn\\Internal", until_exit, Pronghorn_Internal_until_exit, arginfo_Pronghorn_Internal_until_exit)
	ZEND_NS_FALIAS("Pronghorn\\Internal", places_seen, Pronghorn_Internal_places_seen, arginfo_Pronghorn_Internal_places_seen)
	ZEND_NS_FALIAS("Pronghorn\\Internal", printed_watch, Pronghorn_Internal_printed_watch, arginfo_Pronghorn_Internal_printed_watch)
	ZEND_NS_FALIAS("Pronghorn\\Internal", printed_look_away, Pronghorn_Internal_printed_look_away, arginfo_Pronghorn_Internal_printed_look_away)
	ZEND_NS_FALIAS("Pronghorn\\Internal", printed_take, Pronghorn_Internal_printed_take, arginfo_Pronghorn_Internal_printed_take)
	ZEND_NS_FALIAS("Pronghorn\\Internal", printed_close, Pronghorn_Internal_printed_close, arginfo_Pronghorn_Internal_printed_close)
	ZEND_NS_FALIAS("Pronghorn\\Internal", printed_settle, Pronghorn_Internal_printed_settle, arginfo_Pronghorn_Internal_printed_settle)
	ZEND_NS_FALIAS("Pronghorn\\Internal", requests_take_over, Pronghorn_Internal_requests_take_over, arginfo_Pronghorn_Internal_requests_take_over)
	ZEND_NS_FALIAS("Pronghorn\\Internal", reset_keep, Pronghorn_Internal_reset_keep, arginfo_Pronghorn_Internal_reset_keep)
	ZEND_NS_FALIAS("Pronghorn\\Internal", reset_again, Pronghorn_Internal_reset_again, arginfo_Pronghorn_Internal_reset_again)
	ZEND_NS_FALIAS("Pronghorn\\Internal", reset_let_go, Pronghorn_Internal_reset_let_go, arginfo_Pronghorn_Internal_reset_let_go)
	ZEND_NS_FALIAS("Pronghorn\\Internal", leaks_watch, Pronghorn_Internal_leaks_watch, arginfo_Pronghorn_Internal_leaks_watch)
	ZEND_NS_FALIAS("Pronghorn\\Internal", leaks_look, Pronghorn_Internal_leaks_look, arginfo_Pronghorn_Internal_leaks_look)
	ZEND_NS_FALIAS("Pronghorn\\Internal", leaks_collect, Pronghorn_Internal_leaks_collect, arginfo_Pronghorn_Internal_leaks_collect)
	ZEND_NS_FALIAS("Pronghorn\\Internal", request_begin, Pronghorn_Internal_request_begin, arginfo_Pronghorn_Internal_request_begin)
	ZEND_NS_FALIAS("Pronghorn\\Internal", request_serve, Pronghorn_Internal_request_serve, arginfo_Pronghorn_Internal_request_serve)
	ZEND_NS_FALIAS("Pronghorn\\Internal", request_end, Pronghorn_Internal_request_end, arginfo_Pronghorn_Internal_request_end)
	ZEND_NS_FALIAS("Pronghorn\\Internal", request_last, Pronghorn_Internal_request_last, arginfo_Pronghorn_Internal_request_last)
	ZEND_FE_END
};


static const zend_function_entry class_Pronghorn_DeadlineExceeded_methods[] = {
	ZEND_FE_END
};


static const zend_function_entry class_Pronghorn_Internal_NativeProperties_methods[] = {
	ZEND_ME(Pronghorn_Internal_NativeProperties, __construct, arginfo_class_Pronghorn_Internal_NativeProperties___construct, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Internal_NativeProperties, restore, arginfo_class_Pronghorn_Internal_NativeProperties_restore, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};


static const zend_function_entry class_Pronghorn_Internal_NativeStatics_methods[] = {
	ZEND_ME(Pronghorn_Internal_NativeStatics, __construct, arginfo_class_Pronghorn_Internal_NativeStatics___construct, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Internal_NativeStatics, objects, arginfo_class_Pronghorn_Internal_NativeStatics_objects, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Internal_NativeStatics, restore, arginfo_class_Pronghorn_Internal_NativeStatics_restore, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};


static const zend_function_entry class_Pronghorn_Cache_Store_methods[] = {
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, get, arginfo_class_Pronghorn_Cache_Store_get, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, many, arginfo_class_Pronghorn_Cache_Store_many, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, set, arginfo_class_Pronghorn_Cache_Store_set, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, add, arginfo_class_Pronghorn_Cache_Store_add, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, delete, arginfo_class_Pronghorn_Cache_Store_delete, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, increment, arginfo_class_Pronghorn_Cache_Store_increment, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, compareAndSwap, arginfo_class_Pronghorn_Cache_Store_compareAndSwap, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_ABSTRACT_ME_WITH_FLAGS(Pronghorn_Cache_Store, clear, arginfo_class_Pronghorn_Cache_Store_clear, ZEND_ACC_PUBLIC|ZEND_ACC_ABSTRACT)
	ZEND_FE_END
};


static const zend_function_entry class_Pronghorn_Cache_SharedMemory_methods[] = {
	ZEND_ME(Pronghorn_Cache_SharedMemory, __construct, arginfo_class_Pronghorn_Cache_SharedMemory___construct, ZEND_ACC_PRIVATE)
	ZEND_ME(Pronghorn_Cache_SharedMemory, open, arginfo_class_Pronghorn_Cache_SharedMemory_open, ZEND_ACC_PUBLIC|ZEND_ACC_STATIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, get, arginfo_class_Pronghorn_Cache_SharedMemory_get, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, many, arginfo_class_Pronghorn_Cache_SharedMemory_many, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, set, arginfo_class_Pronghorn_Cache_SharedMemory_set, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, add, arginfo_class_Pronghorn_Cache_SharedMemory_add, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, delete, arginfo_class_Pronghorn_Cache_SharedMemory_delete, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, increment, arginfo_class_Pronghorn_Cache_SharedMemory_increment, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, compareAndSwap, arginfo_class_Pronghorn_Cache_SharedMemory_compareAndSwap, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, clear, arginfo_class_Pronghorn_Cache_SharedMemory_clear, ZEND_ACC_PUBLIC)
	ZEND_ME(Pronghorn_Cache_SharedMemory, longest, arginfo_class_Pronghorn_Cache_SharedMemory_longest, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

static void register_pronghorn_symbols(int module_number)
{
	REGISTER_LONG_CONSTANT("Pronghorn\\Internal\\EXTENSION_API", PRONGHORN_API, CONST_PERSISTENT);
	REGISTER_LONG_CONSTANT("Pronghorn\\Internal\\DEADLINE_SIGNAL", DEADLINE_SIGNAL, CONST_PERSISTENT);
}

static zend_class_entry *register_class_Pronghorn_DeadlineExceeded(zend_class_entry *class_entry_Error)
{
	zend_class_entry ce, *class_entry;

	INIT_NS_CLASS_ENTRY(ce, "Pronghorn", "DeadlineExceeded", class_Pronghorn_DeadlineExceeded_methods);
	class_entry = zend_register_internal_class_ex(&ce, class_entry_Error);

	return class_entry;
}

static zend_class_entry *register_class_Pronghorn_Internal_NativeProperties(void)
{
	zend_class_entry ce, *class_entry;

	INIT_NS_CLASS_ENTRY(ce, "Pronghorn\\Internal", "NativeProperties", class_Pronghorn_Internal_NativeProperties_methods);
	class_entry = zend_register_internal_class_ex(&ce, NULL);
	class_entry->ce_flags |= ZEND_ACC_FINAL|ZEND_ACC_NO_DYNAMIC_PROPERTIES|ZEND_ACC_NOT_SERIALIZABLE;

	return class_entry;
}

static zend_class_entry *register_class_Pronghorn_Internal_NativeStatics(void)
{
	zend_class_entry ce, *class_entry;

	INIT_NS_CLASS_ENTRY(ce, "Pronghorn\\Internal", "NativeStatics", class_Pronghorn_Internal_NativeStatics_methods);
	class_entry = zend_register_internal_class_ex(&ce, NULL);
	class_entry->ce_flags |= ZEND_ACC_FINAL|ZEND_ACC_NO_DYNAMIC_PROPERTIES|ZEND_ACC_NOT_SERIALIZABLE;

	return class_entry;
}

static zend_class_entry *register_class_Pronghorn_Cache_Store(void)
{
	zend_class_entry ce, *class_entry;

	INIT_NS_CLASS_ENTRY(ce, "Pronghorn\\Cache", "Store", class_Pronghorn_Cache_Store_methods);
	class_entry = zend_register_internal_interface(&ce);

	return class_entry;
}

static zend_class_entry *register_class_Pronghorn_Cache_SharedMemory(zend_class_entry *class_entry_Pronghorn_Cache_Store)
{
	zend_class_entry ce, *class_entry;

	INIT_NS_CLASS_ENTRY(ce, "Pronghorn\\Cache", "SharedMemory", class_Pronghorn_Cache_SharedMemory_methods);
	class_entry = zend_register_internal_class_ex(&ce, NULL);
	class_entry->ce_flags |= ZEND_ACC_FINAL|ZEND_ACC_NO_DYNAMIC_PROPERTIES|ZEND_ACC_NOT_SERIALIZABLE;
	zend_class_implements(class_entry, 1, class_entry_Pronghorn_Cache_Store);

	return class_entry;
}
