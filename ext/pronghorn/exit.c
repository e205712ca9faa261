#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "exit.h"

ZEND_TLS zend_string *file;
ZEND_TLS zend_long line;

static void remember(const zend_execute_data *frame)
{
	while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->type))) {
		frame = frame->prev_execute_data;
	}
	exit_forget();
	file = frame == NULL ? ZSTR_EMPTY_ALLOC() : zend_string_copy(frame->func->op_array.filename);
	line = frame == NULL ? 0 : frame->opline->lineno;
}

#if PHP_VERSION_ID >= 80400

/* exit is a function. */
static zif_handler called;

static ZEND_FUNCTION(pronghorn_exit)
{
	remember(execute_data);
	called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void exit_startup(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("exit"));
	if (function != NULL && function->type == ZEND_INTERNAL_FUNCTION) {
		called = function->internal_function.handler;
		function->internal_function.handler = ZEND_FN(pronghorn_exit);
	}
}

#else

/* exit is an instruction. Another extension may have its own handler for it. */
static user_opcode_handler_t called;

static int on_exit_opcode(zend_execute_data *frame)
{
	remember(frame);
	return called != NULL ? called(frame) : ZEND_USER_OPCODE_DISPATCH;
}

void exit_startup(void)
{
	called = zend_get_user_opcode_handler(ZEND_EXIT);
	zend_set_user_opcode_handler(ZEND_EXIT, on_exit_opcode);
}

#endif

void exit_forget(void)
{
	if (file != NULL) {
		zend_string_release(file);
		file = NULL;
	}
}

bool exit_place(zval *list)
{
	if (file == NULL) {
		return false;
	}
	array_init_size(list, 2);
	add_next_index_str(list, zend_string_copy(file));
	add_next_index_long(list, line);
	return true;
}
