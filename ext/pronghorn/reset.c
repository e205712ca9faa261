#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "reset.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <syslog.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/date/php_date.h"
#include "ext/json/php_json.h"
#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"
#include "ext/standard/php_filestat.h"
#include "php_globals.h"
#include "php_ini.h"
#include "php_output.h"
#include "zend_exceptions.h"
#include "zend_smart_str.h"
#if PHP_VERSION_ID >= 80200
#include "ext/random/php_random.h"
#endif

#include "module_globals.h"
#include "session.h"
#include "title.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

static bool is_keeping;

/* Whether a function has been called that is watched below. */
static bool has_changes;

/* Levels of errors that are reported, and that the handler of the boot is called for. */
static int error_reporting, handler_reporting;
static bool is_restoring;

static void tell_one(void)
{
	if (zend_is_unwind_exit(EG(exception))) {
		zend_clear_exception();
	} else {
		zend_exception_error(EG(exception), E_WARNING);
	}
}

void reset_tell_exception(void)
{
	const int level = EG(error_reporting), of_handler = EG(user_error_handler_error_reporting);
	if (is_restoring) {
		/* Steps say nothing; destructors of the application do. */
		EG(error_reporting) = error_reporting;
		EG(user_error_handler_error_reporting) = handler_reporting;
	}
	tell_one();
	/* A handler of errors may throw that it was told of it: that is told without it. So is what
	 * destructors of what the exception held throw. */
	enum { MOST = 10 };
	const int for_others = EG(user_error_handler_error_reporting);
	EG(user_error_handler_error_reporting) = 0;
	for (int times = 0; times < MOST && UNEXPECTED(EG(exception) != NULL); times++) {
		tell_one();
	}
	EG(user_error_handler_error_reporting) = for_others;
	if (is_restoring) {
		EG(error_reporting) = level;
		EG(user_error_handler_error_reporting) = of_handler;
	}
}

/* ---- What functions of PHP set, which tell it as well ---- */

/* What is asked and set without arguments of its own before the value. */
#define NOTHING -1

typedef struct {
	/* Watched; with the value as its last argument it sets it. */
	const char *set;
	/* NULL: the same one without a value. */
	const char *get;
	/* The argument of both before the value. */
	int first;
	/* The value to ask with, NULL: none. */
	const char *ask;
	zif_handler called;
	zval value;
	bool is_kept;
	bool is_changed;
} setting;

static ZEND_FUNCTION(pronghorn_set);

/* The places of those that are looked at by themselves. */
#define TIME_ZONE 7
#define XML_ERRORS 17

static setting settings[] = {
	/* One by one: PHP takes no name of 255 letters, which that of all of them may have. */
	{.set = "setlocale", .first = LC_CTYPE, .ask = "0"},
	{.set = "setlocale", .first = LC_COLLATE, .ask = "0"},
	{.set = "setlocale", .first = LC_NUMERIC, .ask = "0"},
	{.set = "setlocale", .first = LC_TIME, .ask = "0"},
	{.set = "setlocale", .first = LC_MONETARY, .ask = "0"},
	{.set = "setlocale", .first = LC_MESSAGES, .ask = "0"},
	{.set = "spl_autoload_extensions", .first = NOTHING},
	[TIME_ZONE] = {.set = "date_default_timezone_set", .get = "date_default_timezone_get", .first = NOTHING},
	{.set = "chdir", .get = "getcwd", .first = NOTHING},
	{.set = "umask", .first = NOTHING},
	{.set = "mb_internal_encoding", .first = NOTHING},
	{.set = "mb_http_output", .first = NOTHING},
	{.set = "mb_language", .first = NOTHING},
	{.set = "mb_substitute_character", .first = NOTHING},
	{.set = "mb_detect_order", .first = NOTHING},
	{.set = "mb_regex_encoding", .first = NOTHING},
	{.set = "mb_regex_set_options", .first = NOTHING},
	[XML_ERRORS] = {.set = "libxml_use_internal_errors", .first = NOTHING},
	/* To ask for it is possible since PHP 8.2. */
	{.set = "libxml_set_external_entity_loader", .get = "libxml_get_external_entity_loader", .first = NOTHING},
};
#define SETTINGS (sizeof settings / sizeof *settings)

static zend_function *find_function(const char *name)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	return function != NULL && function->type == ZEND_INTERNAL_FUNCTION ? function : NULL;
}

/* The next call of a watched function is ours. Destructors may run in it, and change things again. */
static bool is_ours;

static bool take_ours(void)
{
	const bool it_is = is_ours;
	is_ours = false;
	return it_is;
}

/* Calls a function of PHP. False: there is none, or it threw. */
static bool call(const char *name, zval *result, uint32_t count, zval *arguments)
{
	ZVAL_UNDEF(result);
	zend_function *function = find_function(name);
	if (function == NULL) {
		return false;
	}
	/* PHP calls nothing while one is pending. */
	tell_exception();
	is_ours = true;
	zend_call_known_function(function, NULL, NULL, result, count, arguments, NULL);
	is_ours = false;
	if (EG(exception) != NULL) {
		if (is_restoring) {
			/* The destructor of what was there before. */
			tell_exception();
		} else {
			zend_clear_exception();
		}
		zval_ptr_dtor(result);
		ZVAL_UNDEF(result);
		return false;
	}
	return true;
}

/* The function of a setting, with its value or without. */
static bool call_setting(const setting *of, const char *name, const zval *value, zval *result)
{
	zval arguments[2];
	uint32_t count = 0;
	if (of->first != NOTHING) {
		ZVAL_LONG(&arguments[count++], of->first);
	}
	if (value != NULL) {
		ZVAL_COPY_VALUE(&arguments[count++], value);
	}
	return call(name, result, count, arguments);
}

static ZEND_FUNCTION(pronghorn_set)
{
	zif_handler called = NULL;
	const bool by_us = take_ours();
	for (size_t i = 0; i < SETTINGS; i++) {
		if (settings[i].called != NULL && strcmp(ZSTR_VAL(EX(func)->common.function_name), settings[i].set) == 0) {
			if (!by_us) {
				settings[i].is_changed = has_changes = true;
			}
			called = settings[i].called;
		}
	}
	called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void keep_setting(setting *of)
{
	const char *get = of->get == NULL ? of->set : of->get;
	zval ask;
	if (of->called != NULL && !of->is_changed && find_function(get) == NULL) {
		/* Nobody has set it. */
		ZVAL_NULL(&of->value);
		of->is_kept = true;
		return;
	}
	if (of->ask != NULL) {
		ZVAL_STRING(&ask, of->ask);
	}
	of->is_kept = of->called != NULL && call_setting(of, get, of->ask == NULL ? NULL : &ask, &of->value);
	if (of->ask != NULL) {
		zval_ptr_dtor(&ask);
	}
	of->is_changed = false;
}

/* With the categories that PHP has no name for, and changes by LC_ALL. */
static char *locale;

static void keep_locale(void)
{
	const char *now = setlocale(LC_ALL, NULL);
	free(locale);
	locale = now == NULL ? NULL : strdup(now);
}

static void restore_locale(void)
{
	if (settings[0].is_changed && locale != NULL) {
		setlocale(LC_ALL, locale);
	}
}

/* NULL: this PHP has others. */
static zend_date_globals *dates;
/* No code has set a time zone: the one of php.ini holds. */
static bool has_zone_of_ini;

/* A time zone that was set holds against `date.timezone`, also where it is the same. */
static void restore_zone_of_ini(void)
{
	if (dates->timezone != NULL) {
		efree(dates->timezone);
		dates->timezone = NULL;
	}
}

static void restore_settings(void)
{
	restore_locale();
	for (size_t i = 0; i < SETTINGS; i++) {
		if (UNEXPECTED(settings[i].is_changed)) {
			zval result;
			settings[i].is_changed = false;
			if (i == TIME_ZONE && has_zone_of_ini) {
				restore_zone_of_ini();
			} else if (settings[i].is_kept && call_setting(&settings[i], settings[i].set, &settings[i].value, &result)) {
				zval_ptr_dtor(&result);
			}
		}
	}
}

/* ---- Functions that change more than one value ---- */

enum {
	PUTENV, ASSERT_OPTIONS, TEXT_DOMAIN, ASYNC_SIGNALS, LIBXML_STREAMS, LIBXML_LOADER, SEED, SEED_BY_ALIAS, WRAPPER, NO_WRAPPER, ALARM, MYSQLI_REPORT, TITLE,
	MB_SEARCH_INIT, MB_SEARCH, MB_SEARCH_POS, MB_SEARCH_REGS, MB_SEARCH_SETPOS, TEXT_FOLDER, PG_CONNECT, OPENDIR, DIR_OBJECT, OPENLOG, CLOSELOG,
	RESOURCE_LIMIT, GMP_SEED, SOAP_ERRORS, MYSQLI_CONNECT, MYSQLI_REAL_CONNECT, MYSQLI_CONSTRUCTOR, MYSQLI_METHOD, MYSQLI_REAL_METHOD, CHANGES
};
static struct {
	/* In lower case; NULL: none. */
	const char *class;
	const char *function;
	zif_handler called;
	bool happened;
} changes[CHANGES] = {
	[PUTENV] = {.function = "putenv"},
	[ASSERT_OPTIONS] = {.function = "assert_options"},
	[TEXT_DOMAIN] = {.function = "textdomain"},
	[ASYNC_SIGNALS] = {.function = "pcntl_async_signals"},
	[LIBXML_STREAMS] = {.function = "libxml_set_streams_context"},
	[LIBXML_LOADER] = {.function = "libxml_disable_entity_loader"},
	[SEED] = {.function = "mt_srand"},
	[SEED_BY_ALIAS] = {.function = "srand"},
	[WRAPPER] = {.function = "stream_wrapper_register"},
	[NO_WRAPPER] = {.function = "stream_wrapper_unregister"},
	[ALARM] = {.function = "pcntl_alarm"},
	[MYSQLI_REPORT] = {.function = "mysqli_report"},
	[TITLE] = {.function = "cli_set_process_title"},
	[MB_SEARCH_INIT] = {.function = "mb_ereg_search_init"},
	[MB_SEARCH] = {.function = "mb_ereg_search"},
	[MB_SEARCH_POS] = {.function = "mb_ereg_search_pos"},
	[MB_SEARCH_REGS] = {.function = "mb_ereg_search_regs"},
	[MB_SEARCH_SETPOS] = {.function = "mb_ereg_search_setpos"},
	[TEXT_FOLDER] = {.function = "bindtextdomain"},
	[PG_CONNECT] = {.function = "pg_connect"},
	[OPENDIR] = {.function = "opendir"},
	[DIR_OBJECT] = {.function = "dir"},
	[OPENLOG] = {.function = "openlog"},
	[CLOSELOG] = {.function = "closelog"},
	[RESOURCE_LIMIT] = {.function = "posix_setrlimit"},
	[GMP_SEED] = {.function = "gmp_random_seed"},
	[SOAP_ERRORS] = {.function = "use_soap_error_handler"},
	[MYSQLI_CONNECT] = {.function = "mysqli_connect"},
	[MYSQLI_REAL_CONNECT] = {.function = "mysqli_real_connect"},
	[MYSQLI_CONSTRUCTOR] = {.class = "mysqli", .function = "__construct"},
	[MYSQLI_METHOD] = {.class = "mysqli", .function = "connect"},
	[MYSQLI_REAL_METHOD] = {.class = "mysqli", .function = "real_connect"},
};

/* What held before the first call of these functions in a call. */
static zval assert_callback, text_domain, async_signals, title;

/* What the boot gave to libxml_set_streams_context(), and what held before the call, of
 * libxml_disable_entity_loader(): PHP tells neither. */
static zval streams_context, loader_is_disabled;

/* The same of use_soap_error_handler(). */
static zval soap_has_errors;

/* What the boot gave to mysqli_report(); else errors throw, as since PHP 8.1. */
static zend_long mysqli_reporting = 1 | 2;

/* The arguments of the boot's openlog(); the name is NULL where it called none. */
static struct {
	zend_string *name;
	zend_long options, facility;
} system_log;

/* Those of the process before a call changes one. */
static struct rlimit limits[RLIM_NLIMITS];

/* As PHP numbers it. */
#define OPTION_CALLBACK 2

/* Asks or sets without a word: some releases call these functions deprecated. */
static void call_silently(size_t change, uint32_t count, zval *arguments, zval *result)
{
	const int level = EG(error_reporting), of_handler = EG(user_error_handler_error_reporting);
	EG(error_reporting) = EG(user_error_handler_error_reporting) = 0;
	if (!call(changes[change].function, result, count, arguments)) {
		ZVAL_UNDEF(result);
	}
	EG(error_reporting) = level;
	EG(user_error_handler_error_reporting) = of_handler;
}

/* What a function is about to change, where only it tells. */
static void look_before(size_t change)
{
	if (change == TITLE) {
		title_keep();
		call("cli_get_process_title", &title, 0, NULL);
		return;
	}
	if (change == RESOURCE_LIMIT) {
		for (int i = 0; i < RLIM_NLIMITS; i++) {
			getrlimit(i, &limits[i]);
		}
		return;
	}
	zval *into = change == ASSERT_OPTIONS ? &assert_callback : change == TEXT_DOMAIN ? &text_domain : &async_signals;
	zval argument;
	if (change != ASSERT_OPTIONS && change != TEXT_DOMAIN && change != ASYNC_SIGNALS) {
		return;
	}
	if (change == ASSERT_OPTIONS) {
		ZVAL_LONG(&argument, OPTION_CALLBACK);
	} else {
		ZVAL_NULL(&argument);
	}
	call_silently(change, 1, &argument, into);
}

/* That is set again, if it was looked at. */
static void put_back(size_t change, zval *value)
{
	zval arguments[2], result;
	const uint32_t before = change == ASSERT_OPTIONS;
	if (Z_TYPE_P(value) == IS_UNDEF) {
		return;
	}
	ZVAL_LONG(&arguments[0], OPTION_CALLBACK);
	ZVAL_COPY_VALUE(&arguments[before], value);
	ZVAL_UNDEF(value);
	call_silently(change, before + 1, arguments, &result);
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&arguments[before]);
}

/* Where a call has bound domains of gettext: where their texts were before, by their names. */
static HashTable *text_folders;

static void look_at_folder(zval *domain)
{
	zval arguments[2], before;
	if (text_folders == NULL) {
		ALLOC_HASHTABLE(text_folders);
		zend_hash_init(text_folders, 8, NULL, ZVAL_PTR_DTOR, false);
	}
	if (zend_hash_find(text_folders, Z_STR_P(domain)) != NULL) {
		return;
	}
	ZVAL_COPY_VALUE(&arguments[0], domain);
	ZVAL_NULL(&arguments[1]);
	call_silently(TEXT_FOLDER, 2, arguments, &before);
	if (EG(exception) != NULL || Z_TYPE(before) != IS_STRING) {
		/* The call itself tells what is wrong with this name. */
		zend_clear_exception();
		zval_ptr_dtor(&before);
		return;
	}
	zend_hash_update(text_folders, Z_STR_P(domain), &before);
}

static void restore_text_folders(void)
{
	zend_string *domain;
	zval *before, arguments[2], result;
	if (text_folders == NULL) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(text_folders, domain, before) {
		if (domain != NULL) {
			ZVAL_STR(&arguments[0], domain);
			ZVAL_COPY_VALUE(&arguments[1], before);
			call_silently(TEXT_FOLDER, 2, arguments, &result);
			zval_ptr_dtor(&result);
		}
	} ZEND_HASH_FOREACH_END();
	zend_array_destroy(text_folders);
	text_folders = NULL;
}

static void forget_system_log(void)
{
	if (system_log.name != NULL) {
		zend_string_release(system_log.name);
		system_log.name = NULL;
	}
}

/* Notes the boot's openlog() and closelog(). */
static void keep_system_log(size_t change, zend_execute_data *execute_data)
{
	if (change == CLOSELOG && ZEND_NUM_ARGS() == 0) {
		forget_system_log();
	}
	const zval *name = ZEND_CALL_ARG(execute_data, 1), *options = name + 1, *facility = name + 2;
	if (change != OPENLOG || ZEND_NUM_ARGS() != 3 || Z_TYPE_P(name) != IS_STRING || Z_TYPE_P(options) != IS_LONG || Z_TYPE_P(facility) != IS_LONG) {
		return;
	}
	forget_system_log();
	system_log.name = zend_string_dup(Z_STR_P(name), true);
	system_log.options = Z_LVAL_P(options);
	system_log.facility = Z_LVAL_P(facility);
}

/* Whether this is the function that is called: a method has the name of others, too. */
static bool is_called(size_t change, const zend_function *function)
{
	const zend_class_entry *scope = function->common.scope;
	return changes[change].called != NULL && (changes[change].class == NULL) == (scope == NULL)
		&& strcmp(ZSTR_VAL(function->common.function_name), changes[change].function) == 0;
}

static ZEND_FUNCTION(pronghorn_change)
{
	const bool by_us = take_ours();
	for (size_t i = 0; i < CHANGES; i++) {
		if (!is_called(i, EX(func))) {
			continue;
		}
		if (by_us) {
			changes[i].called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
		const bool is_first = !changes[i].happened;
		changes[i].happened = has_changes = true;
		if (i == LIBXML_STREAMS && !is_keeping && ZEND_NUM_ARGS() == 1) {
			zval_ptr_dtor(&streams_context);
			ZVAL_COPY(&streams_context, ZEND_CALL_ARG(execute_data, 1));
		}
		if (!is_keeping) {
			keep_system_log(i, execute_data);
		}
		if (is_first && is_keeping) {
			look_before(i);
		}
		const bool binds = i == TEXT_FOLDER && is_keeping && ZEND_NUM_ARGS() == 2 && Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) == IS_STRING;
		if (binds && Z_TYPE_P(ZEND_CALL_ARG(execute_data, 2)) != IS_NULL && Z_STRLEN_P(ZEND_CALL_ARG(execute_data, 1)) > 0) {
			look_at_folder(ZEND_CALL_ARG(execute_data, 1));
		}
		const bool has_level = i == MYSQLI_REPORT && ZEND_NUM_ARGS() == 1 && Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) == IS_LONG;
		if (has_level && !is_keeping) {
			mysqli_reporting = Z_LVAL_P(ZEND_CALL_ARG(execute_data, 1));
		}
		changes[i].called(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		if (i == LIBXML_LOADER && is_first) {
			ZVAL_COPY_VALUE(&loader_is_disabled, return_value);
		}
		if (i == SOAP_ERRORS && is_keeping && Z_TYPE(soap_has_errors) == IS_UNDEF && EG(exception) == NULL) {
			ZVAL_COPY_VALUE(&soap_has_errors, return_value);
		}
		return;
	}
}

/* Variables that putenv() had set before the first call, with their values. */
static HashTable environment;

static void keep_environment(void)
{
	zend_string *name;
	zend_hash_init(&environment, 8, NULL, ZVAL_PTR_DTOR, false);
	ZEND_HASH_FOREACH_STR_KEY(&BG(putenv_ht), name) {
		const char *value = name == NULL ? NULL : getenv(ZSTR_VAL(name));
		zval text;
		if (name != NULL) {
			/* As putenv() takes it. */
			ZVAL_STR(&text, value == NULL ? zend_string_copy(name) : strpprintf(0, "%s=%s", ZSTR_VAL(name), value));
			zend_hash_str_update(&environment, ZSTR_VAL(name), ZSTR_LEN(name), &text);
		}
	} ZEND_HASH_FOREACH_END();
}

static int forget_variable(zval *entry, int count, va_list arguments, zend_hash_key *key)
{
	(void) entry, (void) count, (void) arguments;
	/* Its destructor puts back what was there before. */
	return key->key == NULL || zend_hash_find(&environment, key->key) == NULL ? ZEND_HASH_APPLY_REMOVE : ZEND_HASH_APPLY_KEEP;
}

static void restore_environment(void)
{
	zend_hash_apply_with_arguments(&BG(putenv_ht), forget_variable, 0);
	zval *text, result;
	ZEND_HASH_FOREACH_VAL(&environment, text) {
		if (call("putenv", &result, 1, text)) {
			zval_ptr_dtor(&result);
		}
	} ZEND_HASH_FOREACH_END();
}

static void seed_anew(void)
{
#if PHP_VERSION_ID >= 80200
	RANDOM_G(mt19937_seeded) = false;
#else
	BG(mt_rand_is_seeded) = false;
#endif
}

/* Stream wrappers of the boot; NULL: those of PHP. */
static HashTable *wrappers;

static HashTable *copy_wrappers(const HashTable *from)
{
	if (from == NULL) {
		return NULL;
	}
	HashTable *copy = emalloc(sizeof *copy);
	zend_hash_init(copy, zend_hash_num_elements(from), NULL, NULL, false);
	zend_hash_copy(copy, (HashTable *) from, NULL);
	return copy;
}

static void drop_wrappers(HashTable *table)
{
	if (table != NULL) {
		zend_hash_destroy(table);
		efree(table);
	}
}

static void restore_wrappers(void)
{
	drop_wrappers(FG(stream_wrappers));
	FG(stream_wrappers) = copy_wrappers(wrappers);
}

static void restore_streams_context(void)
{
	zval result;
	if (Z_TYPE(streams_context) == IS_RESOURCE) {
		if (call("libxml_set_streams_context", &result, 1, &streams_context)) {
			zval_ptr_dtor(&result);
		}
		return;
	}
	zval context;
	if (call("stream_context_create", &context, 0, NULL)) {
		if (call("libxml_set_streams_context", &result, 1, &context)) {
			zval_ptr_dtor(&result);
		}
		zval_ptr_dtor(&context);
	}
}

/* Nobody finds the text of another, nor the pattern: nothing is in an empty text, nor does this
 * pattern match. PHP can't be told to have none. Some options take no such pattern. */
static void restore_search(void)
{
	zval arguments[2], result;
	ZVAL_EMPTY_STRING(&arguments[0]);
	ZVAL_STRING(&arguments[1], "(?!)");
	for (uint32_t count = 1; count <= 2; count++) {
		if (call("mb_ereg_search_init", &result, count, arguments)) {
			zval_ptr_dtor(&result);
		}
	}
	zval_ptr_dtor(&arguments[1]);
}

/* PHP has none until one was set: the command line stood there. */
static void restore_title(void)
{
	const bool is_first = Z_TYPE(title) == IS_STRING && Z_STRLEN(title) == 0;
	put_back(TITLE, &title);
	if (is_first) {
		title_put_back();
	}
}

/* The type of connections of pg_pconnect() among persistent resources; 0: this PHP has none. */
static int postgres_link;

/* Connects anew where a command is under way, such as a COPY: PHP would wait for its end, for ever.
 * By functions of libpq, which PHP's module has loaded. */
static void end_command(void *link)
{
	enum { ACTIVE = 1 };
	static int (*status)(const void *link);
	static void (*reset)(void *link);
	if (status == NULL) {
		status = (int (*)(const void *)) dlsym(RTLD_DEFAULT, "PQtransactionStatus");
		reset = (void (*)(void *)) dlsym(RTLD_DEFAULT, "PQreset");
	}
	if (status != NULL && reset != NULL && status(link) == ACTIVE) {
		reset(link);
	}
}

/* Whether there are connections of pg_pconnect(). None of them has a command under way afterwards. */
static bool has_postgres_links(void)
{
	const zval *entry;
	bool any = false;
	if (EXPECTED(postgres_link == 0)) {
		return false;
	}
	ZEND_HASH_FOREACH_VAL(&EG(persistent_list), entry) {
		if (Z_RES_P(entry)->type == postgres_link) {
			any = true;
			end_command(Z_RES_P(entry)->ptr);
		}
	} ZEND_HASH_FOREACH_END();
	return any;
}

/* The directory that readdir() and others take if given none. Another one takes its place, and goes
 * from there when it is closed; the one before stays open for whoever holds it. */
static void forget_directory(void)
{
	zval path, opened, result;
	/* A text of another kind from release to release. */
	__typeof__(PG(open_basedir)) allowed = PG(open_basedir);
	PG(open_basedir) = NULL;
	ZVAL_STRING(&path, "glob:///");
	if (call("opendir", &opened, 1, &path)) {
		if (Z_TYPE(opened) == IS_RESOURCE && call("closedir", &result, 1, &opened)) {
			zval_ptr_dtor(&result);
		}
		zval_ptr_dtor(&opened);
	}
	zval_ptr_dtor(&path);
	PG(open_basedir) = allowed;
}

/* The C library keeps options and facility when it is told to close. */
static void restore_system_log(void)
{
	zval arguments[3], result;
	if (call("closelog", &result, 0, NULL)) {
		zval_ptr_dtor(&result);
	}
	openlog(NULL, 0, LOG_USER);
	closelog();
	/* PHP's own records, where it writes them there, open it as php.ini says. */
	PG(have_called_openlog) = false;
	if (system_log.name == NULL) {
		return;
	}
	ZVAL_STR_COPY(&arguments[0], system_log.name);
	ZVAL_LONG(&arguments[1], system_log.options);
	ZVAL_LONG(&arguments[2], system_log.facility);
	if (call("openlog", &result, 3, arguments)) {
		zval_ptr_dtor(&result);
	}
	zval_ptr_dtor(&arguments[0]);
}

/* A hard limit that was lowered can be raised by root alone. */
static void restore_limits(void)
{
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit now;
		if (getrlimit(i, &now) == 0 && (now.rlim_cur != limits[i].rlim_cur || now.rlim_max != limits[i].rlim_max)
			&& setrlimit(i, &limits[i]) != 0) {
			now.rlim_cur = limits[i].rlim_cur < now.rlim_max ? limits[i].rlim_cur : now.rlim_max;
			setrlimit(i, &now);
		}
	}
}

static const zend_module_entry *find_module(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

/* The end of PHP's request for a module, if it is there. */
static void end_request(const zend_module_entry *module)
{
	if (module != NULL && module->request_shutdown_func != NULL) {
		module->request_shutdown_func(module->type, module->module_number);
	}
}

/* That, and the next one's beginning. */
static void restart(const char *name)
{
	const zend_module_entry *module = find_module(name);
	end_request(module);
	if (module != NULL && module->request_startup_func != NULL) {
		module->request_startup_func(module->type, module->module_number);
	}
}

static bool any_happened(const bool *happened, size_t first, size_t last)
{
	bool any = false;
	for (size_t i = first; i <= last; i++) {
		any |= happened[i];
	}
	return any;
}

static void restore_changes(void)
{
	zval result;
	bool happened[CHANGES];
	/* Forgotten first: what happens from now on happens again. */
	for (size_t i = 0; i < CHANGES; i++) {
		happened[i] = changes[i].happened;
		changes[i].happened = false;
	}
	if (happened[PUTENV]) {
		restore_environment();
	}
	put_back(ASSERT_OPTIONS, &assert_callback);
	put_back(TEXT_DOMAIN, &text_domain);
	restore_text_folders();
	put_back(ASYNC_SIGNALS, &async_signals);
	if (happened[LIBXML_STREAMS]) {
		restore_streams_context();
	}
	if (happened[LIBXML_LOADER] && call("libxml_disable_entity_loader", &result, 1, &loader_is_disabled)) {
		zval_ptr_dtor(&result);
	}
	if (happened[SEED] || happened[SEED_BY_ALIAS]) {
		seed_anew();
	}
	if (happened[WRAPPER] || happened[NO_WRAPPER]) {
		restore_wrappers();
	}
	if (happened[ALARM]) {
		/* It would kill the worker in another visitor's call. */
		alarm(0);
	}
	const bool has_connected = any_happened(happened, MYSQLI_CONNECT, MYSQLI_REAL_METHOD);
	if (has_connected) {
		/* The error of the last connection that failed goes, and what mysqli_report() has set. */
		restart("mysqli");
	}
	if (happened[MYSQLI_REPORT] || has_connected) {
		zval level;
		ZVAL_LONG(&level, mysqli_reporting);
		if (call("mysqli_report", &result, 1, &level)) {
			zval_ptr_dtor(&result);
		}
	}
	if (happened[TITLE]) {
		restore_title();
	}
	if (happened[OPENDIR] || happened[DIR_OBJECT]) {
		forget_directory();
	}
	if (happened[OPENLOG] || happened[CLOSELOG]) {
		restore_system_log();
	}
	if (happened[RESOURCE_LIMIT]) {
		restore_limits();
	}
	if (happened[GMP_SEED]) {
		/* It draws from a new one when it needs it. */
		end_request(find_module("gmp"));
	}
	if (happened[SOAP_ERRORS]) {
		put_back(SOAP_ERRORS, &soap_has_errors);
	}
	if (any_happened(happened, MB_SEARCH_INIT, MB_SEARCH_SETPOS)) {
		restore_search();
	}
}

/* ---- What modules keep of a request ---- */

static void keep_dates(void)
{
	dates = module_globals("date", sizeof *dates);
	has_zone_of_ini = dates != NULL && (dates->timezone == NULL || *dates->timezone == '\0');
}

/* DateTime::getLastErrors() */
static void forget_date_errors(void)
{
	const timelib_error_container *last = dates == NULL ? NULL : dates->last_errors;
	zval result;
	if (UNEXPECTED(last != NULL && last->error_count + last->warning_count > 0) && call("date_create", &result, 0, NULL)) {
		zval_ptr_dtor(&result);
	}
}

/* output_add_rewrite_var(), and the session's number in links: the buffers that add them are gone. */
static void forget_links(url_adapt_state_ex_t *links)
{
	if (EXPECTED(!links->active)) {
		return;
	}
	smart_str *const texts[] = {
		&links->result, &links->buf, &links->tag, &links->arg, &links->attr_val, &links->url_app, &links->form_app,
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		smart_str_free(texts[i]);
	}
	links->active = links->tag_type = links->attr_type = 0;
}

/* As zlib has them, whose header is not installed. */
static struct zlib_variables {
	zend_long output_compression, output_compression_level;
	char *output_handler;
	void *ob_gzhandler;
	zend_long output_compression_default;
	bool handler_registered;
	int compression_coding;
} *zlib;

/* Which coding the client takes is looked at once in a request, and kept. Where php.ini compresses
 * all output, the beginning of a request opens a buffer for that: only the coding is forgotten. */
static void forget_coding(void)
{
	if (EXPECTED(zlib == NULL || (zlib->compression_coding == 0 && !zlib->handler_registered))) {
		return;
	}
	if (zlib->output_compression_default == 0) {
		restart("zlib");
	} else {
		zlib->compression_coding = 0;
	}
}

/* Modules that many of their functions make keep something of a request: the headers that PECL's
 * http has read, errors of imap. Their ends free it, and are cheap. */
static const char *const forgetful[] = {"http", "imap"};
#define FORGETFUL (sizeof forgetful / sizeof *forgetful)
/* NULL: this PHP is without it. */
static const zend_module_entry *forgetful_modules[FORGETFUL];

static void keep_forgetful(void)
{
	for (size_t i = 0; i < FORGETFUL; i++) {
		forgetful_modules[i] = find_module(forgetful[i]);
	}
}

static void end_forgetful(void)
{
	const int level = EG(error_reporting);
	/* imap tells of errors that nobody has asked for. */
	EG(error_reporting) = 0;
	for (size_t i = 0; i < FORGETFUL; i++) {
		end_request(forgetful_modules[i]);
	}
	EG(error_reporting) = level;
}

/* ---- Settings of php.ini ---- */

typedef struct {
	zend_ini_entry *entry;
	zend_string *value;
} ini_value;

static ini_value *ini_values;
static uint32_t ini_count;

static void keep_ini(void)
{
	zend_ini_entry *entry;
	HashTable *modified = EG(modified_ini_directives);
	if (modified == NULL) {
		return;
	}
	ini_values = pecalloc(zend_hash_num_elements(modified) + 1, sizeof *ini_values, true);
	ZEND_HASH_FOREACH_PTR(modified, entry) {
		ini_values[ini_count++] = (ini_value) {entry, entry->value == NULL ? NULL : zend_string_copy(entry->value)};
	} ZEND_HASH_FOREACH_END();
}

static bool is_ini_as_kept(void)
{
	const HashTable *modified = EG(modified_ini_directives);
	if ((modified == NULL ? 0 : zend_hash_num_elements(modified)) != ini_count) {
		return false;
	}
	for (uint32_t i = 0; i < ini_count; i++) {
		if (ini_values[i].entry->value != ini_values[i].value) {
			return false;
		}
	}
	return true;
}

/* First as a script does it, because some, as those of mbstring, then set more than their value.
 * Those that a script may only tighten, as open_basedir, and those that nobody is told of refuse
 * that: they are set as at the end of PHP's request. */
static void set_ini(zend_ini_entry *entry, zend_string *value)
{
	/* What a refusal says is nobody's. It may have been set back as one of them. */
	EG(error_reporting) = 0;
	zend_alter_ini_entry_ex(entry->name, value, PHP_INI_SYSTEM, PHP_INI_STAGE_RUNTIME, true);
	if (entry->value != value) {
		zend_alter_ini_entry_ex(entry->name, value, PHP_INI_SYSTEM, PHP_INI_STAGE_DEACTIVATE, true);
	}
}

static void unset_ini(zend_ini_entry *entry)
{
	EG(error_reporting) = 0;
	zend_restore_ini_entry(entry->name, PHP_INI_STAGE_RUNTIME);
	if (entry->modified) {
		zend_restore_ini_entry(entry->name, PHP_INI_STAGE_DEACTIVATE);
	}
}

static const ini_value *find_kept(const zend_ini_entry *entry)
{
	for (uint32_t i = 0; i < ini_count; i++) {
		if (ini_values[i].entry == entry) {
			return &ini_values[i];
		}
	}
	return NULL;
}

/* Those that the boot left alone get back what they had at the start, the others what the boot gave
 * them. */
static void restore_ini(void)
{
	HashTable *modified = EG(modified_ini_directives);
	zend_ini_entry *entry;
	if (modified == NULL) {
		return;
	}
	EG(user_error_handler_error_reporting) = 0;
	/* Each of them leaves the table. */
	uint32_t count = 0;
	zend_ini_entry **changed = safe_emalloc(zend_hash_num_elements(modified), sizeof *changed, 0);
	ZEND_HASH_FOREACH_PTR(modified, entry) {
		changed[count++] = entry;
	} ZEND_HASH_FOREACH_END();
	for (uint32_t i = 0; i < count; i++) {
		const ini_value *kept = find_kept(changed[i]);
		if (kept == NULL) {
			unset_ini(changed[i]);
		} else if (changed[i]->value != kept->value && kept->value != NULL) {
			set_ini(changed[i], kept->value);
		}
	}
	efree(changed);
	for (uint32_t i = 0; i < ini_count; i++) {
		/* ini_restore() of what the boot had set. */
		if (ini_values[i].value != NULL && ini_values[i].entry->value != ini_values[i].value) {
			set_ini(ini_values[i].entry, ini_values[i].value);
		}
	}
	EG(user_error_handler_error_reporting) = handler_reporting;
}

/* ---- Handlers of errors and exceptions ---- */

typedef struct {
	zval handler;
	int count;
	zval *below;
	int *reporting;
} handlers;

static handlers errors, exceptions;

static void keep_handlers(handlers *of, const zval *current, zend_stack *stack, zend_stack *reporting)
{
	ZVAL_COPY(&of->handler, current);
	of->count = zend_stack_count(stack);
	of->below = safe_emalloc((size_t) of->count + 1, sizeof *of->below, 0);
	of->reporting = safe_emalloc((size_t) of->count + 1, sizeof *of->reporting, 0);
	for (int i = 0; i < of->count; i++) {
		ZVAL_COPY(&of->below[i], (zval *) zend_stack_base(stack) + i);
		of->reporting[i] = reporting == NULL ? 0 : ((int *) zend_stack_base(reporting))[i];
	}
}

static bool is_same(const zval *a, const zval *b)
{
	return Z_TYPE_P(a) == Z_TYPE_P(b) && (Z_TYPE_P(a) <= IS_TRUE || Z_COUNTED_P(a) == Z_COUNTED_P(b));
}

static bool are_handlers_as_kept(const handlers *of, const zval *current, zend_stack *stack)
{
	if (!is_same(&of->handler, current) || zend_stack_count(stack) != of->count) {
		return false;
	}
	for (int i = 0; i < of->count; i++) {
		if (!is_same(&of->below[i], (zval *) zend_stack_base(stack) + i)) {
			return false;
		}
	}
	return true;
}

static void restore_handlers(const handlers *of, zval *current, zend_stack *stack, zend_stack *reporting)
{
	/* Taken away first: destructors that run now find none of them half gone. */
	zval before;
	ZVAL_COPY_VALUE(&before, current);
	ZVAL_COPY(current, &of->handler);
	zval_ptr_dtor(&before);
	while (!zend_stack_is_empty(stack)) {
		ZVAL_COPY_VALUE(&before, (zval *) zend_stack_top(stack));
		zend_stack_del_top(stack);
		zval_ptr_dtor(&before);
	}
	while (reporting != NULL && !zend_stack_is_empty(reporting)) {
		zend_stack_del_top(reporting);
	}
	for (int i = 0; i < of->count; i++) {
		Z_TRY_ADDREF(of->below[i]);
		zend_stack_push(stack, &of->below[i]);
		if (reporting != NULL) {
			zend_stack_push(reporting, &of->reporting[i]);
		}
	}
}

static void forget_handlers(handlers *of)
{
	zval_ptr_dtor(&of->handler);
	for (int i = 0; i < of->count; i++) {
		zval_ptr_dtor(&of->below[i]);
	}
	efree(of->below);
	efree(of->reporting);
}

static void restore_all_handlers(void)
{
	if (!are_handlers_as_kept(&errors, &EG(user_error_handler), &EG(user_error_handlers))) {
		restore_handlers(&errors, &EG(user_error_handler), &EG(user_error_handlers), &EG(user_error_handlers_error_reporting));
	}
	if (!are_handlers_as_kept(&exceptions, &EG(user_exception_handler), &EG(user_exception_handlers))) {
		restore_handlers(&exceptions, &EG(user_exception_handler), &EG(user_exception_handlers), NULL);
	}
}

/* ---- The default context of streams ---- */

static php_stream_context *default_context;
static zval context_options;
/* What stream_context_set_params() was given for notifications. */
static zval context_callback;

/* NULL: there is none. */
static const zval *callback_of(const php_stream_context *context)
{
	return context->notifier == NULL || Z_TYPE(context->notifier->ptr) == IS_UNDEF ? NULL : &context->notifier->ptr;
}

static void keep_context(void)
{
	default_context = FG(default_context);
	ZVAL_UNDEF(&context_options);
	ZVAL_UNDEF(&context_callback);
	if (default_context != NULL) {
		ZVAL_COPY(&context_options, &default_context->options);
		const zval *callback = callback_of(default_context);
		if (callback != NULL) {
			ZVAL_COPY(&context_callback, callback);
		}
	}
}

static bool is_context_as_kept(void)
{
	if (FG(default_context) != default_context) {
		return false;
	}
	if (default_context == NULL) {
		return true;
	}
	const zval *callback = callback_of(default_context);
	return Z_ARR(default_context->options) == Z_ARR(context_options)
		&& (callback == NULL ? Z_TYPE(context_callback) == IS_UNDEF : is_same(callback, &context_callback));
}

static void restore_callback(void)
{
	php_stream_notifier *now = default_context->notifier;
	if (Z_TYPE(context_callback) == IS_UNDEF) {
		default_context->notifier = NULL;
		php_stream_notification_free(now);
		return;
	}
	zval arguments[2], result;
	ZVAL_RES(&arguments[0], default_context->res);
	array_init(&arguments[1]);
	Z_TRY_ADDREF(context_callback);
	zend_hash_str_add_new(Z_ARRVAL(arguments[1]), ZEND_STRL("notification"), &context_callback);
	if (call("stream_context_set_params", &result, 2, arguments)) {
		zval_ptr_dtor(&result);
	}
	zval_ptr_dtor(&arguments[1]);
}

static void restore_context(void)
{
	php_stream_context *now = FG(default_context);
	if (default_context == NULL && now != NULL) {
		/* PHP makes one for the first file that is opened. */
		FG(default_context) = NULL;
		zend_list_delete(now->res);
	}
	if (default_context != NULL && Z_ARR(default_context->options) != Z_ARR(context_options)) {
		zval before;
		ZVAL_COPY_VALUE(&before, &default_context->options);
		ZVAL_COPY(&default_context->options, &context_options);
		zval_ptr_dtor(&before);
	}
	if (default_context != NULL && default_context == FG(default_context) && !is_context_as_kept()) {
		restore_callback();
	}
}

/* ---- Functions for the end ---- */

static uint32_t shutdown_functions;

/* Runs those of the table. True: a fatal error has ended one of them. PHP has caught it there, and
 * left what was called before as if nothing was: that is set back, so that callers can go on. */
static bool run_functions_of(HashTable *own)
{
	zend_execute_data *frame = EG(current_execute_data);
	const zend_vm_stack stack = EG(vm_stack);
	zval *const top = EG(vm_stack_top), *const end = EG(vm_stack_end);
	HashTable *all = BG(user_shutdown_function_names);
	/* They may run because of a fatal error, and have one of their own. */
	const bool was_unclean = CG(unclean_shutdown);
	CG(unclean_shutdown) = false;
	BG(user_shutdown_function_names) = own;
	php_call_shutdown_functions();
	php_free_shutdown_functions();
	BG(user_shutdown_function_names) = all;
	const bool is_fatal = CG(unclean_shutdown);
	if (is_fatal) {
		EG(current_execute_data) = frame;
		EG(vm_stack) = stack;
		EG(vm_stack_top) = top;
		EG(vm_stack_end) = end;
#ifdef ZEND_HAS_OOM
		/* Builds of PHP that tell of a want of memory late call nothing after a second one. */
		EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
#endif
	}
	CG(unclean_shutdown) = was_unclean;
	return is_fatal;
}

bool reset_has_shutdown_functions(void)
{
	const HashTable *all = BG(user_shutdown_function_names);
	return all != NULL && zend_hash_num_elements(all) > shutdown_functions;
}

void reset_run_shutdown_functions(void)
{
	if (!reset_has_shutdown_functions()) {
		return;
	}
	HashTable *all = BG(user_shutdown_function_names);
	/* Those of the call move into a table of their own, where what they register joins them. */
	HashTable *own;
	ALLOC_HASHTABLE(own);
	zend_hash_init(own, 0, NULL, all->pDestructor, false);
	dtor_func_t destructor = all->pDestructor;
	all->pDestructor = NULL;
	uint32_t position = 0;
	zval *entry;
	zend_ulong number;
	zend_string *name;
	ZEND_HASH_FOREACH_KEY_VAL(all, number, name, entry) {
		if (position++ < shutdown_functions) {
			continue;
		}
		if (name != NULL) {
			/* A module's own, as that of sessions. */
			zend_hash_add_new(own, name, entry);
			zend_hash_del(all, name);
		} else {
			zend_hash_next_index_insert_new(own, entry);
			zend_hash_index_del(all, number);
		}
	} ZEND_HASH_FOREACH_END();
	all->pDestructor = destructor;
	if (run_functions_of(own) && !CG(unclean_shutdown)) {
		/* Nothing goes on after it. After a second one, the reply to the first does. */
		zend_bailout();
	}
}

/* ---- All of it ---- */

static zend_function *find_change(size_t change)
{
	const char *name = changes[change].function, *of = changes[change].class;
	if (of == NULL) {
		return find_function(name);
	}
	const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), of, strlen(of));
	return class == NULL ? NULL : zend_hash_str_find_ptr(&class->function_table, name, strlen(name));
}

static void watch_changes(void)
{
	for (size_t i = 0; i < CHANGES; i++) {
		zend_function *function = changes[i].called != NULL ? NULL : find_change(i);
		if (function != NULL) {
			changes[i].called = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(pronghorn_change);
		}
	}
}

/* Of libxml2, which keeps it whether or not PHP collects errors. NULL: this PHP is without it. */
static const void *(*last_xml_error)(void);

static const void *unknown_xml_error(void)
{
	return "";
}

void reset_startup(void)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		zend_function *function = find_function(settings[i].set);
		if (function != NULL) {
			const bool is_watched = function->internal_function.handler == ZEND_FN(pronghorn_set);
			settings[i].called = is_watched ? settings[i - 1].called : function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(pronghorn_set);
		}
	}
	watch_changes();
	if (find_function("libxml_clear_errors") != NULL) {
		last_xml_error = (const void *(*)(void)) dlsym(RTLD_DEFAULT, "xmlGetLastError");
		if (last_xml_error == NULL) {
			/* A PHP that has libxml2 in itself may hide its names. */
			last_xml_error = unknown_xml_error;
		}
	}
}

static void forget_xml_errors(void)
{
	zval result;
	if (last_xml_error != NULL && (Z_TYPE(settings[XML_ERRORS].value) == IS_TRUE || last_xml_error() != NULL)
		&& call("libxml_clear_errors", &result, 0, NULL)) {
		zval_ptr_dtor(&result);
	}
}

static void forget_errors(void)
{
	zval result;
	if (PG(last_error_message) != NULL && call("error_clear_last", &result, 0, NULL)) {
		zval_ptr_dtor(&result);
	}
}

static void forget_strtok(void)
{
	if (BG(strtok_string) != NULL) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
}

static void forget_files(void)
{
	if (BG(CurrentStatFile) != NULL || BG(CurrentLStatFile) != NULL) {
		php_clear_stat_cache(false, NULL, 0);
	}
}

void reset_keep(void)
{
	/* That a function is deprecated concerns nobody who is only asked for a setting. */
	const int reporting = EG(error_reporting);
	EG(error_reporting) = 0;
	for (size_t i = 0; i < SETTINGS; i++) {
		keep_setting(&settings[i]);
	}
	EG(error_reporting) = reporting;
	/* Functions of the command line come after the modules. */
	watch_changes();
	for (size_t i = 0; i < CHANGES; i++) {
		changes[i].happened = false;
	}
	has_changes = false;
	keep_locale();
	keep_environment();
	keep_dates();
	zlib = module_globals("zlib", sizeof *zlib);
	keep_forgetful();
	wrappers = copy_wrappers(FG(stream_wrappers));
	keep_ini();
	keep_handlers(&errors, &EG(user_error_handler), &EG(user_error_handlers), &EG(user_error_handlers_error_reporting));
	keep_handlers(&exceptions, &EG(user_exception_handler), &EG(user_exception_handlers), NULL);
	error_reporting = EG(error_reporting);
	handler_reporting = EG(user_error_handler_error_reporting);
	keep_context();
	postgres_link = zend_fetch_list_dtor_id("pgsql link persistent");
	shutdown_functions = BG(user_shutdown_function_names) == NULL ? 0 : zend_hash_num_elements(BG(user_shutdown_function_names));
	forget_errors();
	is_keeping = true;
}

bool reset_is_keeping(void)
{
	return is_keeping;
}

bool reset_is_due(void)
{
	return has_changes || PG(last_error_message) != NULL || !is_ini_as_kept()
		|| !are_handlers_as_kept(&errors, &EG(user_error_handler), &EG(user_error_handlers))
		|| !are_handlers_as_kept(&exceptions, &EG(user_exception_handler), &EG(user_exception_handlers))
		|| !is_context_as_kept();
}

static bool is_session_open(void)
{
#ifdef HAVE_PHP_SESSION
	const php_ps_globals *session = session_globals();
	return session != NULL && session->session_status == php_session_active;
#else
	return false;
#endif
}

bool reset_restore(void)
{
	is_restoring = true;
	const bool was_told = tell_exception();
	const bool is_due = reset_is_due();
	if (UNEXPECTED(is_due)) {
		restore_all_handlers();
		tell_exception();
		/* PHP refuses to change settings of an open session, and frees their values all the same.
		 * They are due until it is closed. */
		if (!is_ini_as_kept() && !is_session_open()) {
			restore_ini();
			tell_exception();
		}
	}
	EG(user_error_handler_error_reporting) = handler_reporting;
	const bool has_links = has_postgres_links();
	if (UNEXPECTED(has_links || changes[PG_CONNECT].happened)) {
		/* What is open on connections of pg_pconnect() is rolled back, and the one that functions
		 * take if given none is let go. */
		restart("pgsql");
	}
	if (UNEXPECTED(has_changes)) {
		/* What they say is nobody's. */
		EG(error_reporting) = 0;
		has_changes = false;
		restore_settings();
		restore_changes();
	}
	forget_xml_errors();
#if PHP_VERSION_ID >= 80600
	php_json_error_details_clear(&JSON_G(error_details));
#else
	JSON_G(error_code) = 0;
#endif
	PCRE_G(error_code) = 0;
	if (UNEXPECTED(OG(flags) & PHP_OUTPUT_IMPLICITFLUSH)) {
		php_output_set_implicit_flush(0);
	}
	/* An `exit` behind an @ leaves it low. */
	EG(error_reporting) = error_reporting;
	if (UNEXPECTED(is_due)) {
		restore_context();
	}
	end_forgetful();
	forget_errors();
	forget_date_errors();
	forget_coding();
	forget_links(&BG(url_adapt_output_ex));
	forget_links(&BG(url_adapt_session_ex));
	forget_strtok();
	forget_files();
#if PHP_VERSION_ID >= 80200
	zend_memory_reset_peak_usage();
#endif
	const bool has_thrown = tell_exception();
	is_restoring = false;
	return is_due || was_told || has_thrown;
}

void reset_let_go(void)
{
	if (!is_keeping) {
		return;
	}
	is_keeping = false;
	for (size_t i = 0; i < SETTINGS; i++) {
		zval_ptr_dtor(&settings[i].value);
		ZVAL_UNDEF(&settings[i].value);
	}
	zval *const looked_at[] = {&assert_callback, &text_domain, &async_signals, &title};
	for (size_t i = 0; i < sizeof looked_at / sizeof *looked_at; i++) {
		zval_ptr_dtor(looked_at[i]);
		ZVAL_UNDEF(looked_at[i]);
	}
	if (text_folders != NULL) {
		zend_array_destroy(text_folders);
		text_folders = NULL;
	}
	free(locale);
	locale = NULL;
	zend_hash_destroy(&environment);
	drop_wrappers(wrappers);
	wrappers = NULL;
	for (uint32_t i = 0; i < ini_count; i++) {
		if (ini_values[i].value != NULL) {
			zend_string_release(ini_values[i].value);
		}
	}
	pefree(ini_values, true);
	ini_values = NULL;
	ini_count = 0;
	forget_handlers(&errors);
	forget_handlers(&exceptions);
	if (default_context != NULL) {
		zval_ptr_dtor(&context_options);
		zval_ptr_dtor(&context_callback);
		default_context = NULL;
	}
}

void reset_forget(void)
{
	zval_ptr_dtor(&streams_context);
	ZVAL_UNDEF(&streams_context);
	forget_system_log();
	reset_let_go();
}
