#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "messages.h"

#include "php.h"
#include "SAPI.h"
#include "php_globals.h"

#include "channel.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

static messages_ask *ask;
/* Those of PHP's command line. */
static void (*log_by_php)(const char *message, int level);
static messages_report *report_error;
/* The next message of the log is about a fatal error. The loop reports that with its call. */
static bool is_reported;
/* The next message of the log is PHP's own. */
static bool is_by_php;

bool messages_have_file(void)
{
#if PHP_VERSION_ID >= 80600
	return PG(error_log) != NULL && ZSTR_LEN(PG(error_log)) != 0;
#else
	return PG(error_log) != NULL && *PG(error_log) != '\0';
#endif
}

void messages_report_by(messages_report *report, int type, zend_string *file, const uint32_t line, zend_string *message)
{
	/* It logs before it displays, which runs code of the application: buffers have callbacks. */
	is_by_php = PG(log_errors) && !messages_have_file();
	zend_try {
		report(type, file, line, message);
	} zend_catch {
		is_by_php = false;
		zend_bailout();
	} zend_end_try();
	is_by_php = false;
}

bool messages_are_by_php(void)
{
	const bool are = is_by_php;
	is_by_php = false;
	return are;
}

static void log_message(const char *message, int level)
{
	const bool by_php = messages_are_by_php();
	const uint32_t call = is_reported ? 0 : ask();
	is_reported = false;
	if (call == 0 || !channel_log(call, message, by_php)) {
		log_by_php(message, level);
	}
}

/* PHP writes what it displays on stderr past its log. While a call is under way it goes through the
 * log instead, once. */
static void on_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	const bool has_file = PG(log_errors) && messages_have_file();
	is_reported = (type & E_FATAL_ERRORS) != 0 && PG(log_errors) && !has_file;
	if (type & E_FATAL_ERRORS || has_file || PG(display_errors) != PHP_DISPLAY_ERRORS_STDERR || ask() == 0) {
		messages_report_by(report_error, type, file, line, message);
		return;
	}
	const bool log_errors = PG(log_errors);
	__typeof__(PG(error_log)) error_log = PG(error_log);
	PG(log_errors) = true;
	PG(error_log) = NULL;
	PG(display_errors) = 0;
	messages_report_by(report_error, type, file, line, message);
	PG(display_errors) = PHP_DISPLAY_ERRORS_STDERR;
	PG(error_log) = error_log;
	PG(log_errors) = log_errors;
}

void messages_take_over(messages_ask *who)
{
	ask = who;
	log_by_php = sapi_module.log_message;
	sapi_module.log_message = log_message;
	report_error = zend_error_cb;
	zend_error_cb = on_error;
}

void messages_give_back(void)
{
	if (sapi_module.log_message == log_message) {
		sapi_module.log_message = log_by_php;
	}
	if (zend_error_cb == on_error) {
		zend_error_cb = report_error;
	}
	is_reported = false;
}
