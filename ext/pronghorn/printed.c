#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "printed.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

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
	if (write_by_php == NULL) {
		write_by_php = sapi_module.ub_write;
		flush_by_php = sapi_module.flush;
	}
	/* A script that closed its worker may begin with another. */
	sapi_module.ub_write = printed_write;
	sapi_module.flush = flush;
	/* PHP's command line flushes behind each print, which would send the head. */
	php_output_set_implicit_flush(0);
}

/* What the script prints after its last call is the log's. What PHP frees at the end of the process
 * may print a visitor's. */
static size_t write_after_calls(const char *text, size_t length)
{
	if (EG(flags) & EG_FLAGS_IN_SHUTDOWN) {
		late += length;
		return length;
	}
	return write_by_php(text, length);
}

void printed_give_back(void)
{
	if (write_by_php != NULL) {
		sapi_module.ub_write = write_after_calls;
		sapi_module.flush = flush_by_php;
	}
}

void printed_end(void)
{
	if (write_by_php == NULL) {
		return;
	}
	printed_give_back();
	/* PHP prints to this file as soon as its output is taken down, past the functions of the SAPI. */
	fflush(stdout);
	int sink = memfd_create("printed", MFD_CLOEXEC);
	if (sink < 0) {
		/* Not counted there. */
		sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
	}
	if (sink >= 0) {
		dup2(sink, STDOUT_FILENO);
		close(sink);
	}
}

void printed_ended(void)
{
	if (write_by_php == NULL) {
		return;
	}
	fflush(stdout);
	const off_t past = lseek(STDOUT_FILENO, 0, SEEK_CUR);
	late += past > 0 ? (size_t) past : 0;
	if (late > 0) {
		fprintf(stderr, "pronghorn: this process has printed %zu bytes at its end, which nobody gets\n", late);
	}
	sapi_module.ub_write = write_by_php;
	write_by_php = NULL;
	late = 0;
}

void printed_close(zend_long above)
{
	zend_object *first = NULL;
	while (OG(active) != NULL && php_output_get_level() > above) {
		/* Else PHP refuses to close it where the application has said so. */
		OG(active)->flags |= PHP_OUTPUT_HANDLER_REMOVABLE;
		const bool is_closed = php_output_end() == SUCCESS;
		if (UNEXPECTED(EG(exception) != NULL)) {
			if (first == NULL) {
				first = EG(exception);
				GC_ADDREF(first);
			}
			zend_clear_exception();
		}
		if (!is_closed) {
			break;
		}
	}
	if (first == NULL) {
		return;
	}
	if (zend_is_unwind_exit(first)) {
		OBJ_RELEASE(first);
		zend_throw_unwind_exit();
	} else {
		zend_throw_exception_internal(first);
	}
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
