#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "printed.h"

#include "SAPI.h"
#include "php_output.h"
#include "zend_exceptions.h"

#include "head.h"
#include "reply.h"
#include "requests.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

static printed_ask *ask;
static void (*has_begun)(void);
/* Those of PHP's command line. */
static size_t (*write_by_php)(const char *text, size_t length);
static void (*flush_by_php)(void *context);
static size_t late;
static bool has_ended_call;

/* The reply is the one of this call, as far as it is. */
static enum printed_place look(void)
{
	uint32_t call = 0;
	const enum printed_place place = ask(&call);
	if (place == PRINTED_REPLY || place == PRINTED_STREAM) {
		reply_begin_once(call, place == PRINTED_STREAM);
	}
	return place;
}

/* What PHP was told of it by now, as before any output. */
static void give_head(void)
{
	if (reply_has_head() || reply_has_first()) {
		return;
	}
	if (requests_under_way()) {
		head_send(&SG(sapi_headers));
	} else {
		reply_set_status(200);
	}
}

void printed_to_nobody(void)
{
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	if (!PG(ignore_user_abort) && EG(exception) == NULL && EG(current_execute_data) != NULL && !requests_are_finished()) {
		/* The call ends here. PHP would end the process's request. */
		zend_throw_unwind_exit();
		has_ended_call = true;
	}
}

void printed_begins(void)
{
	has_ended_call = false;
}

bool printed_has_ended_call(void)
{
	return has_ended_call;
}

static void end_if_gone(bool is_there)
{
	if (reply_has_begun()) {
		has_begun();
	}
	if (!is_there) {
		printed_to_nobody();
	}
}

size_t printed_write(const char *text, size_t length)
{
	switch (look()) {
		case PRINTED_LOG:
			return write_by_php(text, length);
		case PRINTED_LATE:
			late += length;
			return length;
		default:
			give_head();
			end_if_gone(reply_write(text, length));
			return length;
	}
}

/* Not before something was printed: a handler that only asks for a flush still has its head to
 * return. */
static void flush(void *context)
{
	const enum printed_place place = look();
	if (place == PRINTED_LOG) {
		flush_by_php(context);
	} else if (place != PRINTED_LATE && reply_has_body()) {
		give_head();
		end_if_gone(reply_flush());
	}
}

void printed_take_over(printed_ask *who, void (*begun)(void))
{
	ask = who;
	has_begun = begun;
	if (sapi_module.ub_write != printed_write) {
		write_by_php = sapi_module.ub_write;
		flush_by_php = sapi_module.flush;
		sapi_module.ub_write = printed_write;
		sapi_module.flush = flush;
	}
	/* PHP's command line flushes behind each print, which would send the head. */
	php_output_set_implicit_flush(0);
}

void printed_give_back(void)
{
	if (sapi_module.ub_write == printed_write) {
		sapi_module.ub_write = write_by_php;
		sapi_module.flush = flush_by_php;
	}
	late = 0;
}

void printed_drop(size_t length)
{
	late += length;
}

bool printed_any(void)
{
	if (reply_has_body()) {
		return true;
	}
	const int count = zend_stack_count(&OG(handlers));
	php_output_handler **handlers = zend_stack_base(&OG(handlers));
	for (int i = 0; i < count; i++) {
		if (handlers[i]->buffer.used > 0) {
			return true;
		}
	}
	return false;
}

void printed_recover(void)
{
	php_output_handler *running = OG(running);
	if (running != NULL) {
		running->flags |= PHP_OUTPUT_HANDLER_DISABLED;
		running->buffer.used = 0;
		OG(running) = NULL;
	}
	if (!(OG(flags) & PHP_OUTPUT_ACTIVATED)) {
		php_output_activate();
	}
}

zend_string *printed_take(void)
{
	size_t length;
	const char *text = reply_take(&length);
	return length == 0 ? NULL : zend_string_init(text, length, false);
}

zend_string *printed_take_all(void)
{
	php_output_end_all();
	return printed_take();
}

size_t printed_settle(void)
{
	const size_t dropped = late;
	late = 0;
	reply_forget();
	return dropped;
}

bool printed_has_late(void)
{
	return late > 0;
}
