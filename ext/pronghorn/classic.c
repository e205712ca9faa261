/* The process is php's command line until its first request begins. Then this takes over: it serves
 * calls, each as a whole request, and ends the process when the server wants that. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "classic.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/standard/head.h"
#include "php_globals.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_constants.h"
#include "zend_signal.h"

#include "classic_call.h"
#include "classic_ini.h"
#include "head.h"
#include "messages.h"
#include "release.h"
#include "reply.h"
#include "title.h"
#include "zygote.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

/* By it the server says that it starts this process for scripts: the names of the variables that
 * these may see in the environment, with a `=` between each two, which no name has. */
#define ASKED "PRONGHORN_CLASSIC"
#define PIPES "PRONGHORN_PIPES"
#define RING "PRONGHORN_RING"
/* In place of both, by which descriptor the server orders workers. */
#define ZYGOTE "PRONGHORN_ZYGOTE"
/* For `ps`: the pool's name, and the number of the worker's place in it. */
#define POOL "PRONGHORN_POOL"
#define WORKER "PRONGHORN_WORKER"
/* What programs look for when they want to know whether they may call fastcgi_finish_request(). */
#define NAME "fpm-fcgi"

static bool is_on;
/* PHP's own, which know the environment of the process. */
static void (*import_environment)(zval *);
static void (*load_environment)(zval *);

/* The call at hand, NULL between two. */
static const call_t *call;
/* The file with its body. */
static int body_file = -1;
static size_t body_taken;
/* Bytes that PHP has written for the call at hand. */
static size_t written;
/* In development: PHP has ended the script, and so many bytes were written before, or wait in PHP's
 * buffers. */
static bool is_ended;
static size_t written_before;

bool classic_is_on(void)
{
	return is_on;
}

/* ---- What a script is told ---- */

static char *value_of(const char *name)
{
	return call == NULL ? NULL : call_value(call, name, strlen(name));
}

/* An empty text where there is none: PHP tells both apart in some places, and php-fpm never gives
 * it NULL there. */
static char *text_of(const char *name)
{
	static char none[1];
	char *value = value_of(name);
	return value == NULL ? none : value;
}

static char *get_variable(const char *name, size_t length)
{
	return call == NULL ? NULL : call_value(call, name, length);
}

static char *read_cookies(void)
{
	return value_of("HTTP_COOKIE");
}

/* PHP reads names to their NUL, and in the frame there is none behind them. */
static char *name_of(const call_variable *variable)
{
	return estrndup(variable->name, variable->name_length);
}

static void register_variables(zval *into, bool filter)
{
	int source = Z_ARR_P(into) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]) ? PARSE_ENV : PARSE_SERVER;
	for (size_t i = 0; call != NULL && i < call->count; i++) {
		const call_variable *variable = &call->variables[i];
		/* As others do it: what has a NUL in it ends there. */
		size_t length = strlen(variable->value);
		char *name = name_of(variable), *value = variable->value;
		if (!filter || sapi_module.input_filter(source, name, &value, length, &length)) {
			php_register_variable_safe(name, value, length, into);
		}
		efree(name);
	}
}

/* For $_ENV and as the beginning of $_SERVER: the environment of the process, and the call's
 * variables. */
static void import_variables(zval *into)
{
	static const int others[] = {TRACK_VARS_ENV, TRACK_VARS_SERVER};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		zval *other = &PG(http_globals)[others[i]];
		if (Z_TYPE_P(other) == IS_ARRAY && Z_ARR_P(other) != Z_ARR_P(into) && zend_hash_num_elements(Z_ARR_P(other)) > 0) {
			zend_array_destroy(Z_ARR_P(into));
			Z_ARR_P(into) = zend_array_dup(Z_ARR_P(other));
			return;
		}
	}
	import_environment(into);
	register_variables(into, true);
}

/* For getenv() without a name. */
static void load_variables(zval *into)
{
	load_environment(into);
	register_variables(into, false);
}

static void register_server_variables(zval *into)
{
	php_import_environment_variables(into);
	zend_string *self = zend_strpprintf(0, "%s%s", text_of("SCRIPT_NAME"), text_of("PATH_INFO"));
	char *text = ZSTR_VAL(self);
	size_t length = ZSTR_LEN(self);
	if (sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &text, length, &length)) {
		php_register_variable_safe("PHP_SELF", text, length, into);
	}
	zend_string_release(self);
}

/* Less than was asked for is the end of it. */
static size_t read_body(char *into, size_t most)
{
	if (call == NULL) {
		return 0;
	}
	if (!call->body_is_file) {
		size_t length = MIN(most, call->body_length - body_taken);
		memcpy(into, call->body + body_taken, length);
		body_taken += length;
		return length;
	}
	if (body_file < 0) {
		body_file = open(call->body, O_RDONLY | O_CLOEXEC);
	}
	size_t length = 0;
	while (body_file >= 0 && length < most) {
		ssize_t got = read(body_file, into + length, most - length);
		if (got == 0 || (got < 0 && errno != EINTR)) {
			break;
		}
		length += (size_t) MAX(got, 0);
	}
	return length;
}

static void forget_body(void)
{
	if (body_file >= 0) {
		close(body_file);
		body_file = -1;
	}
}

void classic_script_ended(void)
{
	if (is_on) {
		/* PHP would read the rest of it, for the sake of connections. */
		SG(post_read) = 1;
	}
}

/* ---- What it answers ---- */

static size_t write_output(const char *text, size_t length)
{
	if (call == NULL) {
		/* PHP has a word to say about its start. */
		ssize_t told = write(STDERR_FILENO, text, length);
		(void) told;
		return length;
	}
	written += length;
	if (!reply_write(text, length)) {
		php_handle_aborted_connection();
	}
	return length;
}

static void flush_output(void *context)
{
	if (!reply_flush()) {
		php_handle_aborted_connection();
	}
}

/* The server knows of which call it is. */
static void log_message(const char *message, int level)
{
	const bool by_php = messages_are_by_php();
	if (call != NULL && call_log(call, message, by_php)) {
		return;
	}
	const struct iovec parts[] = {{(char *) message, strlen(message)}, {"\n", 1}};
	ssize_t told = writev(STDERR_FILENO, parts, 2);
	(void) told;
}

/* ---- What ends it, in development ---- */

static messages_report *report_error;

static int add_waiting(void *element, void *sum)
{
	*(size_t *) sum += (*(php_output_handler **) element)->buffer.used;
	return 0;
}

/* For the server: where PHP would not write it to the log, or to another one. */
static void tell_server(int type, const zend_string *file, uint32_t line, const zend_string *message)
{
	if (PG(log_errors) && !messages_have_file() && (EG(error_reporting) & type & E_ALL) != 0) {
		return;
	}
	const char *kind = type & E_PARSE ? "Parse error" : type & E_RECOVERABLE_ERROR ? "Recoverable fatal error" : "Fatal error";
	char *text;
	spprintf(&text, 0, "PHP %s:  %s in %s on line %u", kind, ZSTR_VAL(message), ZSTR_VAL(file), line);
	call_log(call, text, true);
	efree(text);
}

/* The server shows a page for what has ended a script. PHP itself displays nothing of it then, and
 * so the status is 500. */
static void on_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	if (call != NULL && call->development && type & E_FATAL_ERRORS && !is_ended && !reply_has_begun()) {
		is_ended = true;
		written_before = written;
		if (OG(flags) & PHP_OUTPUT_ACTIVATED) {
			zend_stack_apply_with_argument(&OG(handlers), ZEND_STACK_APPLY_TOPDOWN, add_waiting, &written_before);
		}
		PG(display_errors) = 0; /* until the end of the request, as activate() has changed it */
		tell_server(type, file, line, message);
	}
	messages_report_by(report_error, type, file, line, message);
}

/* What a script wrote before its end is no page. What a shutdown function wrote afterwards is: the
 * application's own. */
static void leave_page_to_server(void)
{
	if (is_ended && written <= written_before) {
		reply_empty(500);
	}
}

/* ---- Functions that php-fpm has and the command line does not ---- */

static ZEND_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();

	php_output_end_all();
	php_header();
	RETURN_BOOL(call_end(true));
}

static ZEND_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();

	array_init(return_value);
	for (size_t i = 0; call != NULL && i < call->count; i++) {
		const call_variable *variable = &call->variables[i];
		char *name = name_of(variable);
		sapi_add_request_header(
			name, (unsigned) variable->name_length, variable->value, (unsigned) variable->value_length, return_value
		);
		efree(name);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_FE(fastcgi_finish_request, arginfo_finish)
	ZEND_FE(apache_request_headers, arginfo_headers)
	ZEND_FALIAS(getallheaders, apache_request_headers, arginfo_headers)
	ZEND_FE_END
};

/* ---- Calls ---- */

static int activate(void);

static int deactivate(void)
{
	if (call != NULL) {
		leave_page_to_server();
		/* All that may write or fail has run: what a session has kept is there when the client asks
		 * for the next page. */
		if (!call_end(false)) {
			call_free();
		}
		forget_body();
	}
	return SUCCESS;
}

static void describe_request(void)
{
	sapi_request_info *info = &SG(request_info);
	info->request_method = value_of("REQUEST_METHOD");
	info->query_string = value_of("QUERY_STRING");
	info->path_translated = value_of("SCRIPT_FILENAME");
	info->request_uri = value_of("SCRIPT_NAME");
	info->content_type = text_of("CONTENT_TYPE");
	info->content_length = ZEND_STRTOL(text_of("CONTENT_LENGTH"), NULL, 10);
	info->argc = 0;
	info->argv = NULL;
	info->argv0 = NULL;
	php_handle_auth_data(value_of("HTTP_AUTHORIZATION"));
	SG(sapi_headers).http_response_code = 200;
	SG(server_context) = (void *) call;
	/* The request is here: there is nothing to wait for that a clock of its own would have to
	 * measure. */
	PG(max_input_time) = -1;
	/* Its folder is gone to once, below. PHP would go there and back, and a shutdown function might
	 * leave it elsewhere. */
	SG(options) |= SAPI_OPTION_NO_CHDIR;
}

static void refuse(int status, const char *text)
{
	zend_try {
		SG(sapi_headers).http_response_code = status;
		PUTS(text);
	} zend_end_try();
}

static void run_script(void)
{
	const char *path = SG(request_info).path_translated;
	/* It was there when the server looked. */
	if (path == NULL || access(path, R_OK) != 0 || VCWD_CHDIR_FILE(path) != 0) {
		if (path != NULL && errno == EACCES) {
			/* As php-fpm says it: nothing else tells the operator why. */
			char *message;
			spprintf(&message, 0, "Unable to open primary script: %s (%s)", path, strerror(EACCES));
			php_log_err(message);
			efree(message);
			refuse(403, "Access denied.\n");
		} else {
			refuse(404, "File not found.\n");
		}
		return;
	}
	zend_file_handle script;
	/* Not opened here: OPcache may know it. */
	zend_stream_init_filename(&script, path);
	script.primary_script = true;
	php_execute_script(&script);
	if (!script.in_list) {
		zend_destroy_file_handle(&script);
	}
}

static void serve(void)
{
	body_taken = written = 0;
	is_ended = false;
	describe_request();
	if (php_request_startup() == SUCCESS) {
		run_script();
	} else {
		SG(sapi_headers).http_response_code = 500;
	}
	php_request_shutdown(NULL);
	SG(server_context) = NULL;
	call = NULL;
}

/* ---- The start ---- */

/* Leaves of the environment what scripts may see: what starts a worker must not start one of its
 * children, and what the server knows is not for them. */
static void clear_environment(const char *list)
{
	char *names = strdup(list), *rest = names, *name;
	/* Each name is followed by a separator, or is the last one. */
	size_t count = 0, room = strlen(list) + 2;
	char **kept = calloc(room, sizeof *kept);
	while (names != NULL && kept != NULL && (name = strsep(&rest, "=")) != NULL) {
		const char *value = getenv(name);
		if (value != NULL) {
			kept[count++] = strdup(name);
			kept[count++] = strdup(value);
		}
	}
	clearenv();
	for (size_t i = 0; i + 1 < count; i += 2) {
		setenv(kept[i], kept[i + 1], 1);
		free(kept[i]);
		free(kept[i + 1]);
	}
	free(kept);
	free(names);
}

/* Says in `ps` what this process is. Without a worker's number it is what they are forked from. */
static void name_process(const char *worker)
{
	char title[256];
	const char *pool = getenv(POOL);
	if (pool == NULL) {
		return;
	}
	if (worker == NULL) {
		snprintf(title, sizeof title, "pronghorn: pool %.200s zygote, classic", pool);
	} else {
		snprintf(title, sizeof title, "pronghorn: pool %.200s worker %.10s, classic", pool, worker);
	}
	title_set(title);
}

/* A script that reads it would wait for the server to write. */
static void close_input(void)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nothing >= 0) {
		dup2(nothing, STDIN_FILENO);
		close(nothing);
	}
}

/* Takes back, in reverse, what php_request_startup() has done before it came to take_over().
 * php_request_shutdown() does more: it also calls what modules have for the time after a request,
 * and those that never saw one begin free there what was never made. */
static void undo_startup(void)
{
	php_output_deactivate();
	zend_deactivate();
	sapi_deactivate();
	virtual_cwd_deactivate();
	zend_interned_strings_deactivate();
	/* With it goes the compiler's arena. What it would tell of leaks is just that. */
	shutdown_memory_manager(true, false);
}

/* Ends the process as php-fpm does. Modules end as they would like to: connections that were kept
 * are closed, and what observes PHP sends what it has. Back in the command line they would see a
 * request that nobody made: a session, a connection to a debugger. */
static void leave(void)
{
	/* Modules are unloaded, and this code is one's. */
	Dl_info own;
	if (dladdr(&is_on, &own) == 0 || dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == NULL) {
		_exit(0);
	}
	php_module_shutdown();
	sapi_shutdown();
#ifdef ZTS
	tsrm_shutdown();
#endif
	exit(0);
}

static const char *attach(zygote_order *order, bool is_forked)
{
	const char *wrong = is_forked ? NULL : call_read_offer(getenv(PIPES), getenv(RING), &order->offer);
	if (wrong == NULL) {
		wrong = call_greet(&order->offer);
	}
	if (wrong == NULL && is_forked && !zygote_is_adopted(order)) {
		wrong = "the server that it was forked for is not its parent";
	}
	return wrong == NULL ? call_attach(&order->offer, PRONGHORN_VERSION) : wrong;
}

/* In place of the first request of php's command line, which has begun. Does not return to it. */
static int take_over(void)
{
	if (!EG(active)) {
		return SUCCESS; /* OPcache has preloaded scripts, and there is no request yet */
	}
	undo_startup();
	sapi_module.activate = activate;
#ifdef ZEND_SIGNALS
	/* A debug build of PHP would warn of what follows from that below. */
	SIGG(check) = false;
#endif
	zygote_order order = {0};
	const zygote_boot boot = {0};
	const char *control = getenv(ZYGOTE);
	name_process(control != NULL ? NULL : getenv(WORKER));
	if (control != NULL && !zygote_serve(atoi(control), &boot, &order)) {
		leave();
	}
	if (control != NULL) {
		char worker[24];
		snprintf(worker, sizeof worker, "%ld", order.worker);
		name_process(worker);
	}
	const char *wrong = attach(&order, control != NULL);
	if (wrong != NULL) {
		fprintf(stderr, "this PHP can't serve scripts: %s\n", wrong);
		_exit(1);
	}
	clear_environment(getenv(ASKED));
	close_input();
#ifdef ZEND_SIGNALS
	/* Eight system calls for each call, for the sake of signals that somebody caught and did not
	 * give back. */
	SIGG(reset) = zend_hash_str_exists(&module_registry, ZEND_STRL("pcntl"));
#endif
	while ((call = call_next()) != NULL) {
		serve();
	}
	leave();
	return SUCCESS;
}

static int activate(void)
{
	/* Its length is wanted all the same: the server leaves out the body. */
	SG(request_info).headers_only = false;
	if (call->development) {
		zend_string *name = zend_string_init(ZEND_STRL("display_errors"), false);
		zend_alter_ini_entry_chars(name, "1", 1, PHP_INI_USER, PHP_INI_STAGE_RUNTIME);
		zend_string_release(name);
	}
	if (SG(request_info).path_translated != NULL) {
		classic_ini_activate(SG(request_info).path_translated, value_of("DOCUMENT_ROOT"), value_of("SERVER_NAME"));
	}
	return SUCCESS;
}

/* What only the command line has, and may leave a process that is no longer what it was: php-fpm
 * knows no pcntl. */
static void forget_process_control(void)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("pcntl"));
	if (module != NULL && module->handle == NULL) {
		zend_unregister_functions(module->functions, -1, NULL);
		/* At the end of a request the engine takes away what lies behind the place at which the
		 * table ended before it. Gaps would close when the table grows, and some of a script's
		 * functions would stay, before that place. */
		zend_hash_rehash(CG(function_table));
		zend_hash_str_del(&module_registry, ZEND_STRL("pcntl"));
	}
}

/* The constant was made before any extension was loaded. */
static void change_name(void)
{
	zend_constant *name = zend_hash_str_find_ptr(EG(zend_constants), ZEND_STRL("PHP_SAPI"));
	if (name != NULL) {
		ZVAL_STR(&name->value, zend_string_init_interned(NAME, sizeof NAME - 1, true));
	}
	sapi_module.name = NAME;
	sapi_module.pretty_name = "Pronghorn";
}

void classic_prepare(void)
{
	bool is_asked = getenv(ASKED) != NULL && (getenv(PIPES) != NULL || getenv(ZYGOTE) != NULL);
	if (!is_asked || strcmp(sapi_module.name, "cli") != 0) {
		return;
	}
	is_on = true;
	change_name();
	forget_process_control();
	classic_ini_restore();
	import_environment = php_import_environment_variables;
	php_import_environment_variables = import_variables;
	/* Not in all releases that this is built for. */
	void (**load)(zval *) = dlsym(RTLD_DEFAULT, "php_load_environment_variables");
	if (load != NULL) {
		load_environment = *load;
		*load = load_variables;
	}
	report_error = zend_error_cb;
	zend_error_cb = on_error;
	sapi_module.phpinfo_as_text = 0;
	sapi_module.additional_functions = functions;
	sapi_module.activate = take_over;
	sapi_module.deactivate = deactivate;
	sapi_module.ub_write = write_output;
	sapi_module.flush = flush_output;
	sapi_module.getenv = get_variable;
	sapi_module.header_handler = NULL;
	sapi_module.send_headers = head_send;
	sapi_module.send_header = NULL;
	sapi_module.read_post = read_body;
	sapi_module.read_cookies = read_cookies;
	sapi_module.register_server_variables = register_server_variables;
	sapi_module.log_message = log_message;
}
