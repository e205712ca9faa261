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
static void (*report_error)(int type, zend_string *file, const uint32_t line, zend_string *message);
/* The next message of the log is about a fatal error. The loop reports that with its call. */
static bool is_reported;

static void log_message(const char *message, int level)
{
	const uint32_t call = is_reported ? 0 : ask();
	is_reported = false;
	if (call == 0 || !channel_log(call, message)) {
		log_by_php(message, level);
	}
}

/* PHP writes what it displays on stderr past its log. While a call is under way it goes through the
 * log instead, once. */
static void on_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	const bool has_file = PG(log_errors) && PG(error_log) != NULL;
	is_reported = (type & E_FATAL_ERRORS) != 0 && PG(log_errors) && !has_file;
	if (type & E_FATAL_ERRORS || has_file || PG(display_errors) != PHP_DISPLAY_ERRORS_STDERR || ask() == 0) {
		report_error(type, file, line, message);
		return;
	}
	const bool log_errors = PG(log_errors);
	__typeof__(PG(error_log)) error_log = PG(error_log);
	PG(log_errors) = true;
	PG(error_log) = NULL;
	PG(display_errors) = 0;
	report_error(type, file, line, message);
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
