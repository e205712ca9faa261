#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "requests.h"

#include <fcntl.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/standard/head.h"
#include "php_globals.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "rfc1867.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"
#include "zend_modules.h"

#include "channel.h"
#include "classic_ini.h"
#include "head.h"
#include "leftovers.h"
#include "printed.h"
#include "reply.h"
#include "reset.h"
#include "session.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

static enum { OFF, HANDLER, FRONT } style;
static const native_slots *slots;
/* PHP's own, as it was before. */
static sapi_module_struct command_line;

/* The call at hand; `request` is NULL between two. */
static struct {
	zend_object *request;
	zend_object *body;
	char *cookies;
	zend_string *joined; /* cookies of several fields */
	const char *content_type, *content_length, *authorization;
	zend_string *content; /* of a form that was read as it came */
	size_t taken;         /* of the body */
	int file;             /* with the body; -1: it was not opened */
	zval parts;           /* a stream of a body of several parts; UNDEF: nobody has asked for it */
	bool is_form_filtered;
	bool is_finished;
} call;

bool requests_on(void)
{
	return style != OFF;
}

bool requests_under_way(void)
{
	return call.request != NULL;
}

bool requests_are_front(void)
{
	return style == FRONT;
}

bool requests_are_finished(void)
{
	return call.is_finished;
}

/* ---- Its request ---- */

/* A property of it. What is read late was not read when the exchange was made by PHP code. */
static const zval *property(uint32_t offset, const char *name)
{
	const zval *value = OBJ_PROP(call.request, offset);
	if (Z_TYPE_P(value) == IS_UNDEF) {
		zval unused;
		zend_read_property(call.request->ce, call.request, name, strlen(name), true, &unused);
		value = OBJ_PROP(call.request, offset);
	}
	return value;
}

static zend_string *text(uint32_t offset, const char *name)
{
	const zval *value = property(offset, name);
	return Z_TYPE_P(value) == IS_STRING ? Z_STR_P(value) : ZSTR_EMPTY_ALLOC();
}

static zend_long flags_of_request(void)
{
	const zval *flags = OBJ_PROP(call.request, slots->flags);
	return Z_TYPE_P(flags) == IS_LONG ? Z_LVAL_P(flags) : 0;
}

/* The next pair of a name and a value, each with a NUL behind it. False: there is none. */
static bool next_field(const char **at, const char *end, const char **name, char **value)
{
	const char *nul = *at >= end ? NULL : memchr(*at, 0, (size_t) (end - *at));
	if (nul == NULL) {
		return false;
	}
	*name = *at;
	*value = (char *) nul + 1;
	nul = memchr(nul + 1, 0, (size_t) (end - nul - 1));
	*at = nul == NULL ? end : nul + 1;
	return true;
}

static void add_cookies(char *value)
{
	if (call.cookies == NULL) {
		call.cookies = value;
		return;
	}
	zend_string *joined = strpprintf(0, "%s; %s", call.cookies, value);
	if (call.joined != NULL) {
		zend_string_release(call.joined);
	}
	call.joined = joined;
	call.cookies = ZSTR_VAL(joined);
}

static void find_fields(void)
{
	const zend_string *fields = text(slots->fields, "uri");
	const char *at = ZSTR_VAL(fields), *end = at + ZSTR_LEN(fields), *name;
	char *value;
	while (next_field(&at, end, &name, &value)) {
		if (*name == 'c') {
			if (strcmp(name, "cookie") == 0) {
				add_cookies(value);
			} else if (strcmp(name, "content-type") == 0) {
				call.content_type = value;
			} else if (strcmp(name, "content-length") == 0) {
				call.content_length = value;
			}
		} else if (*name == 'a' && strcmp(name, "authorization") == 0) {
			call.authorization = value;
		}
	}
}

static bool is_form(void)
{
	static const char type[] = "application/x-www-form-urlencoded";
	return call.content_type != NULL && strncasecmp(call.content_type, type, sizeof type - 1) == 0
		&& strchr(";, ", call.content_type[sizeof type - 1]) != NULL;
}

/* Whether it is a form of several parts, which the server has taken apart. */
static bool is_of_parts(void)
{
	return flags_of_request() & NATIVE_FORM;
}

static bool is_post(void)
{
	return strcasecmp(SG(request_info).request_method, "POST") == 0;
}

/* A form that comes while it is read is read by the request: whoever asks that for it finds it as
 * well. */
static void read_form_body(void)
{
	zval content;
	ZVAL_UNDEF(&content);
	zend_call_method(call.request, call.request->ce, NULL, ZEND_STRL("body"), &content, 0, NULL, NULL);
	if (Z_TYPE(content) == IS_STRING) {
		call.content = Z_STR(content);
	} else {
		zval_ptr_dtor(&content);
	}
}

static void describe(void)
{
	sapi_request_info *info = &SG(request_info);
	const zend_string *body = text(slots->payload, "payload");
	info->request_method = ZSTR_VAL(text(slots->method, "method"));
	info->query_string = ZSTR_VAL(text(slots->query, "queryString"));
	info->request_uri = ZSTR_VAL(text(slots->path, "path"));
	find_fields();
	/* PHP reads the body of a POST at once for a type that is not NULL, to make $_POST. A form of
	 * several parts the server has taken apart. */
	info->content_type = is_form() || (is_of_parts() && !is_post()) ? call.content_type : NULL;
	if (info->content_type != NULL && call.body != NULL) {
		read_form_body();
	}
	info->content_length = call.content_length != NULL ? ZEND_STRTOL(call.content_length, NULL, 10) : (zend_long) ZSTR_LEN(body);
	if (call.authorization != NULL) {
		php_handle_auth_data(call.authorization);
	}
}

/* ---- Its body ---- */

static size_t read_text(char *into, size_t most)
{
	const zend_string *body = call.content != NULL ? call.content : text(slots->payload, "payload");
	size_t length = MIN(most, ZSTR_LEN(body) - MIN(call.taken, ZSTR_LEN(body)));
	memcpy(into, ZSTR_VAL(body) + call.taken, length);
	call.taken += length;
	return length;
}

static size_t read_file(char *into, size_t most)
{
	if (call.file < 0) {
		call.file = open(ZSTR_VAL(text(slots->payload, "payload")), O_RDONLY | O_CLOEXEC);
	}
	size_t length = 0;
	while (call.file >= 0 && length < most) {
		ssize_t got = read(call.file, into + length, most - length);
		if (got == 0 || (got < 0 && errno != EINTR)) {
			break;
		}
		length += (size_t) MAX(got, 0);
	}
	return length;
}

/* Less than was asked for is the end of it, to PHP. */
static size_t read_stream(char *into, size_t most)
{
	size_t length = 0;
	while (length < most && EG(exception) == NULL) {
		zval count, piece;
		ZVAL_LONG(&count, (zend_long) (most - length));
		ZVAL_UNDEF(&piece);
		zend_call_method(call.body, call.body->ce, NULL, ZEND_STRL("read"), &piece, 1, &count, NULL);
		if (Z_TYPE(piece) != IS_STRING || Z_STRLEN(piece) == 0 || Z_STRLEN(piece) > most - length) {
			zval_ptr_dtor(&piece);
			break;
		}
		memcpy(into + length, Z_STRVAL(piece), Z_STRLEN(piece));
		length += Z_STRLEN(piece);
		zval_ptr_dtor(&piece);
	}
	return length;
}

/* Reads a form that the server has taken apart. */
static zval form_reader;

/* PHP makes no $_POST of it, so that the application may look at the body itself: it gets one like
 * that of the client. */
static size_t read_parts(char *into, size_t most)
{
	if (Z_TYPE(call.parts) == IS_UNDEF) {
		zval arguments[2];
		ZVAL_OBJ(&arguments[0], call.request);
		ZVAL_TRUE(&arguments[1]);
		call_user_function(NULL, NULL, &form_reader, &call.parts, 2, arguments);
	}
	php_stream *stream = NULL;
	if (Z_TYPE(call.parts) == IS_RESOURCE) {
		php_stream_from_zval_no_verify(stream, &call.parts);
	}
	const ssize_t length = stream == NULL ? 0 : php_stream_read(stream, into, most);
	return length < 0 ? 0 : (size_t) length;
}

static size_t read_body(char *into, size_t most)
{
	if (call.request == NULL) {
		return 0;
	}
	if (is_of_parts()) {
		return is_post() ? 0 : read_parts(into, most);
	}
	if (call.body != NULL && call.content == NULL) {
		return read_stream(into, most);
	}
	if (call.content != NULL) {
		return read_text(into, most);
	}
	return flags_of_request() & NATIVE_BODY_FILE ? read_file(into, most) : read_text(into, most);
}

static char *read_cookies(void)
{
	return call.cookies;
}

/* Code of the application may have run behind the end of a call, or may still, when its last values
 * are freed. */
static bool is_unsettled;

/* PHP keeps what was read of it in a stream, which handles of php://input look at: those go with
 * it. */
static void forget_body(void)
{
	php_stream *kept = SG(request_info).request_body;
	if (call.file >= 0) {
		close(call.file);
		call.file = -1;
	}
	if (call.content != NULL) {
		zend_string_release(call.content);
		call.content = NULL;
	}
	if (UNEXPECTED(Z_TYPE(call.parts) != IS_UNDEF)) {
		zval_ptr_dtor(&call.parts);
		ZVAL_UNDEF(&call.parts);
	}
	if (kept == NULL) {
		return;
	}
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		if (stream != NULL && strcmp(stream->ops->label, "Input") == 0) {
			zend_list_close(resource);
		}
	} ZEND_HASH_FOREACH_END();
	SG(request_info).request_body = NULL;
	/* It may have filters of the application. */
	is_unsettled = true;
	php_stream_close(kept);
}

/* ---- Superglobals ---- */

enum { GET, POST, COOKIE, FILES, REQUEST, SERVER, ENVIRONMENT, GLOBALS };
static struct {
	const char *text;
	zend_string *name;
	/* Its place among PHP's own copies; -1: there is none. */
	int track;
	zend_auto_global *maker;
	/* Where it was in the table of globals. */
	uint32_t position;
} globals[GLOBALS] = {
	[GET] = {.text = "_GET", .track = TRACK_VARS_GET},
	[POST] = {.text = "_POST", .track = TRACK_VARS_POST},
	[COOKIE] = {.text = "_COOKIE", .track = TRACK_VARS_COOKIE},
	[FILES] = {.text = "_FILES", .track = TRACK_VARS_FILES},
	[REQUEST] = {.text = "_REQUEST", .track = -1},
	[SERVER] = {.text = "_SERVER", .track = TRACK_VARS_SERVER},
	[ENVIRONMENT] = {.text = "_ENV", .track = TRACK_VARS_ENV},
};

/* $_SERVER before the first call, or before the first one that begins with it, without what is of a
 * request, and $_ENV. NULL: nobody has asked for it. */
static zend_array *server, *environment;

/* Whether PHP makes it when code that names it is compiled, and none was. */
static bool is_made_late(unsigned global)
{
	return globals[global].maker->jit && globals[global].maker->armed;
}

/* NULL: there is none. A look at where it was is enough, almost always. */
static zval *find_global(unsigned global)
{
	zend_array *table = &EG(symbol_table);
	const uint32_t at = globals[global].position;
	zval *value;
	if (EXPECTED(at < table->nNumUsed && table->arData[at].key == globals[global].name)) {
		value = &table->arData[at].val;
	} else {
		value = zend_hash_find_known_hash(table, globals[global].name);
		if (value == NULL) {
			return NULL;
		}
		globals[global].position = (uint32_t) ((Bucket *) value - table->arData);
	}
	ZVAL_DEINDIRECT(value);
	return value;
}

/* Takes over a reference to the array. */
static void set_global(unsigned global, zend_array *array)
{
	const int track = globals[global].track;
	zval value;
	if (GC_FLAGS(array) & IS_ARRAY_IMMUTABLE) {
		ZVAL_EMPTY_ARRAY(&value);
	} else {
		ZVAL_ARR(&value, array);
	}
	/* Destructors find the new value. */
	zval before, tracked, *place = find_global(global);
	ZVAL_UNDEF(&tracked);
	ZVAL_UNDEF(&before);
	if (track >= 0) {
		ZVAL_COPY_VALUE(&tracked, &PG(http_globals)[track]);
		ZVAL_COPY(&PG(http_globals)[track], &value);
	}
	if (place == NULL) {
		zend_hash_add_new(&EG(symbol_table), globals[global].name, &value);
	} else {
		ZVAL_COPY_VALUE(&before, place);
		ZVAL_COPY_VALUE(place, &value);
	}
	/* One that code has changed is another array than the one that PHP made. */
	const bool is_as_made = Z_TYPE(before) == IS_UNDEF || (Z_TYPE(before) == IS_ARRAY
		&& (Z_TYPE(tracked) == IS_ARRAY ? Z_ARR(tracked) == Z_ARR(before) : zend_hash_num_elements(Z_ARRVAL(before)) == 0));
	is_unsettled |= !is_as_made;
	zval_ptr_dtor(&tracked);
	zval_ptr_dtor(&before);
}

static void empty_global(unsigned global)
{
	const zval *value = find_global(global);
	const int track = globals[global].track;
	if (EXPECTED(value != NULL && Z_TYPE_P(value) == IS_ARRAY && Z_ARR_P(value) == &zend_empty_array
		&& (track < 0 || (Z_TYPE(PG(http_globals)[track]) == IS_ARRAY && Z_ARR(PG(http_globals)[track]) == &zend_empty_array)))) {
		return;
	}
	set_global(global, (zend_array *) &zend_empty_array);
}

static void share_global(unsigned global, zend_array *array)
{
	const zval *value = find_global(global);
	if (value == NULL || Z_TYPE_P(value) != IS_ARRAY || Z_ARR_P(value) != array) {
		GC_TRY_ADDREF(array);
		set_global(global, array);
	}
}

/* As PHP makes it at the begin of a request. */
static void make_global(unsigned global)
{
	zend_auto_global *maker = globals[global].maker;
	const int track = globals[global].track;
	if (track >= 0) {
		zval before;
		ZVAL_COPY_VALUE(&before, &PG(http_globals)[track]);
		ZVAL_UNDEF(&PG(http_globals)[track]);
		zval_ptr_dtor(&before);
	}
	maker->armed = maker->auto_global_callback(maker->name);
}

static void free_path(zval *path)
{
	zend_string_release(Z_STR_P(path));
}

static void read_form(void)
{
	zval of, parts, *part;
	ZVAL_OBJ(&of, call.request);
	ZVAL_UNDEF(&parts);
	if (call_user_function(NULL, NULL, &form_reader, &parts, 1, &of) != SUCCESS || Z_TYPE(parts) != IS_ARRAY) {
		zval_ptr_dtor(&parts);
		return;
	}
	static const unsigned into[] = {POST, FILES};
	for (zend_ulong i = 0; i < 2; i++) {
		part = zend_hash_index_find(Z_ARRVAL(parts), i);
		if (part != NULL && Z_TYPE_P(part) == IS_ARRAY) {
			Z_TRY_ADDREF_P(part);
			set_global(into[i], Z_ARRVAL_P(part));
		}
	}
	zval *paths = zend_hash_index_find(Z_ARRVAL(parts), 2), *path;
	if (paths != NULL && Z_TYPE_P(paths) == IS_ARRAY && zend_hash_num_elements(Z_ARRVAL_P(paths)) > 0) {
		ALLOC_HASHTABLE(SG(rfc1867_uploaded_files));
		zend_hash_init(SG(rfc1867_uploaded_files), 8, NULL, free_path, false);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(paths), path) {
			zend_hash_update_ptr(SG(rfc1867_uploaded_files), Z_STR_P(path), zend_string_copy(Z_STR_P(path)));
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&parts);
}

static zend_array *environment_now(void);

static void make_globals(void)
{
	bool any = false;
	if (SG(request_info).query_string[0] != '\0') {
		make_global(GET);
		any = true;
	}
	if (call.cookies != NULL) {
		make_global(COOKIE);
		any = true;
	}
	if (is_post()) {
		if (is_of_parts()) {
			read_form();
		} else if (SG(request_info).content_type != NULL) {
			make_global(POST);
		}
		any = true;
	}
	if (!is_made_late(SERVER)) {
		if (server == NULL) {
			/* An earlier call's changes are gone here. */
			server = environment_now();
		}
		make_global(SERVER);
	}
	if (any && !is_made_late(REQUEST)) {
		make_global(REQUEST);
	}
}

static void empty_globals(void)
{
	for (unsigned global = GET; global <= REQUEST; global++) {
		if (global != REQUEST || !is_made_late(REQUEST)) {
			empty_global(global);
		}
	}
	if (!is_made_late(SERVER)) {
		share_global(SERVER, server != NULL ? server : (zend_array *) &zend_empty_array);
	}
	if (environment != NULL) {
		share_global(ENVIRONMENT, environment);
	} else if (!is_made_late(ENVIRONMENT)) {
		make_global(ENVIRONMENT);
	}
}

/* ---- $_SERVER ---- */

enum variable {
	SCRIPT_FILENAME, SCRIPT_NAME, PHP_SELF, DOCUMENT_ROOT, GATEWAY_INTERFACE, SERVER_SOFTWARE, REQUEST_METHOD, REQUEST_URI,
	QUERY_STRING, SERVER_PROTOCOL, REMOTE_ADDR, REQUEST_SCHEME, HTTPS, SERVER_NAME, SERVER_PORT, HTTP_HOST, REMOTE_USER, AUTH_TYPE, VARIABLES
};

static const char *const variable_names[VARIABLES] = {
	"SCRIPT_FILENAME", "SCRIPT_NAME", "PHP_SELF", "DOCUMENT_ROOT", "GATEWAY_INTERFACE", "SERVER_SOFTWARE", "REQUEST_METHOD",
	"REQUEST_URI", "QUERY_STRING", "SERVER_PROTOCOL", "REMOTE_ADDR", "REQUEST_SCHEME", "HTTPS", "SERVER_NAME", "SERVER_PORT",
	"HTTP_HOST", "REMOTE_USER", "AUTH_TYPE",
};
static zend_string *names[VARIABLES];

static bool is_of_request(const zend_string *name)
{
	static const char *const names[] = {
		"AUTH_TYPE", "CONTENT_LENGTH", "CONTENT_TYPE", "DOCUMENT_ROOT", "DOCUMENT_URI", "GATEWAY_INTERFACE", "HTTPS",
		"ORIG_PATH_INFO", "PATH_INFO", "PATH_TRANSLATED", "PHP_SELF", "QUERY_STRING", "REMOTE_ADDR", "REMOTE_HOST",
		"REMOTE_IDENT", "REMOTE_PORT", "REMOTE_USER", "REQUEST_METHOD", "REQUEST_SCHEME", "REQUEST_TIME",
		"REQUEST_TIME_FLOAT", "REQUEST_URI", "SCRIPT_FILENAME", "SCRIPT_NAME", "SERVER_ADDR", "SERVER_NAME",
		"SERVER_PORT", "SERVER_PROTOCOL", "SERVER_SOFTWARE", "argc", "argv",
	};
	static const char *const beginnings[] = {"HTTP_", "PHP_AUTH_", "REDIRECT_", "SSL_"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(ZSTR_VAL(name), names[i]) == 0) {
			return true;
		}
	}
	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
		if (strncmp(ZSTR_VAL(name), beginnings[i], strlen(beginnings[i])) == 0) {
			return true;
		}
	}
	return false;
}

/* The worker's script, as a web server names one below a root. */
static zend_string *script_file, *script_name, *document_root;

static void name_script(void)
{
	char path[MAXPATHLEN];
	const char *script = SG(request_info).path_translated;
	if (script == NULL || VCWD_REALPATH(script, path) == NULL) {
		snprintf(path, sizeof path, "/%s", script == NULL ? "worker.php" : script);
	}
	const char *slash = strrchr(path, '/');
	script_file = zend_string_init(path, strlen(path), false);
	script_name = zend_string_init(slash, strlen(slash), false);
	document_root = slash == path ? zend_string_init("/", 1, false) : zend_string_init(path, (size_t) (slash - path), false);
}

/* For the variables of a request. */
#define ROOM 40

static zend_array *without_request(zend_array *from)
{
	zend_string *name;
	zval *value;
	zend_array *left = zend_new_array(zend_hash_num_elements(from) + ROOM);
	zend_hash_real_init_mixed(left);
	ZEND_HASH_FOREACH_STR_KEY_VAL(from, name, value) {
		if (name != NULL && !is_of_request(name)) {
			ZVAL_DEREF(value);
			Z_TRY_ADDREF_P(value);
			zend_hash_add_new(left, name, value);
		}
	} ZEND_HASH_FOREACH_END();
	return left;
}

static void keep_server(void)
{
	const zval *now = is_made_late(SERVER) ? NULL : find_global(SERVER);
	if (now != NULL) {
		ZVAL_DEREF(now);
	}
	if (now != NULL && Z_TYPE_P(now) == IS_ARRAY) {
		server = without_request(Z_ARRVAL_P(now));
	}
}

static zend_array *environment_now(void)
{
	zval variables;
	array_init(&variables);
	php_import_environment_variables(&variables);
	zend_array *now = without_request(Z_ARRVAL(variables));
	zval_ptr_dtor(&variables);
	return now;
}

/* The filter extension keeps what goes through it, for filter_input(). Hardly anybody calls that,
 * so these variables go there when somebody does, if the values stay what they are. */
static bool is_filtered_late, is_filtered;

/* Takes over a reference to the value. */
static void add_variable(zval *into, zend_string *name, zend_string *value)
{
	if (!is_filtered_late || is_filtered) {
		size_t length = ZSTR_LEN(value);
		char *filtered = estrndup(ZSTR_VAL(value), length);
		const bool is_kept = sapi_module.input_filter(PARSE_SERVER, ZSTR_VAL(name), &filtered, length, &length);
		zend_string_release(value);
		value = is_kept ? zend_string_init_fast(filtered, length) : NULL;
		efree(filtered);
		if (value == NULL) {
			return;
		}
	}
	zval text;
	ZVAL_STR(&text, value);
	zend_hash_update(Z_ARRVAL_P(into), name, &text);
}

static void add_text(zval *into, enum variable name, const char *value, size_t length)
{
	add_variable(into, names[name], zend_string_init_fast(value, length));
}

static void add_string(zval *into, enum variable name, zend_string *value)
{
	add_variable(into, names[name], zend_string_copy(value));
}

/* As HTTP_…, if it is letters, digits and hyphens. nginx passes no others on, and programs take
 * HTTP_PROXY for a proxy of their own (CVE-2016-5385). */
static void add_field(zval *into, const char *field, const char *value)
{
	const size_t length = strlen(field);
	if (length > 250 || strcmp(field, "proxy") == 0) {
		return;
	}
	const bool is_bare = strcmp(field, "content-type") == 0 || strcmp(field, "content-length") == 0;
	const size_t start = is_bare ? 0 : 5;
	zend_string *name = zend_string_alloc(start + length, false);
	memcpy(ZSTR_VAL(name), "HTTP_", start);
	for (size_t i = 0; i < length; i++) {
		const char c = field[i];
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
			zend_string_efree(name);
			return;
		}
		ZSTR_VAL(name)[start + i] = c == '-' ? '_' : c >= 'a' ? (char) (c - 'a' + 'A') : c;
	}
	ZSTR_VAL(name)[start + length] = '\0';
	const zval *before = zend_hash_find(Z_ARRVAL_P(into), name);
	if (before == NULL || Z_TYPE_P(before) != IS_STRING) {
		add_variable(into, name, zend_string_init_fast(value, strlen(value)));
	} else {
		const char *between = strcmp(field, "cookie") == 0 ? "; " : ", ";
		add_variable(into, name, strpprintf(0, "%s%s%s", Z_STRVAL_P(before), between, value));
	}
	zend_string_release(name);
}

static void add_address(zval *into, bool secure)
{
	zend_string *host = text(slots->host, "uri");
	const char *colon = strrchr(ZSTR_VAL(host), ':');
	if (colon != NULL && ZSTR_VAL(host)[ZSTR_LEN(host) - 1] == ']') {
		colon = NULL;
	}
	const char *port = colon != NULL && colon[1] != '\0' ? colon + 1 : secure ? "443" : "80";
	add_text(into, SERVER_NAME, ZSTR_VAL(host), colon == NULL ? ZSTR_LEN(host) : (size_t) (colon - ZSTR_VAL(host)));
	add_text(into, SERVER_PORT, port, strlen(port));
	if (ZSTR_LEN(host) > 0) {
		add_string(into, HTTP_HOST, host);
	}
}

/* What the server has verified: a name, and the client's certificate. */
static void add_attributes(zval *into)
{
	const zval *attributes = property(slots->attributes, "attributes");
	if (Z_TYPE_P(attributes) != IS_ARRAY || zend_hash_num_elements(Z_ARRVAL_P(attributes)) == 0) {
		return;
	}
	const zval *user = zend_hash_str_find(Z_ARRVAL_P(attributes), ZEND_STRL("remote_user"));
	if (user != NULL && Z_TYPE_P(user) == IS_STRING) {
		add_string(into, REMOTE_USER, Z_STR_P(user));
		add_text(into, AUTH_TYPE, "Basic", 5);
	}
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(attributes), name, value) {
		if (name != NULL && Z_TYPE_P(value) == IS_STRING && strncmp(ZSTR_VAL(name), "SSL_CLIENT_", 11) == 0) {
			add_variable(into, name, zend_string_copy(Z_STR_P(value)));
		}
	} ZEND_HASH_FOREACH_END();
}

static void add_variables(zval *into)
{
	const zend_string *uri = text(slots->uri, "uri"), *host = text(slots->host, "uri");
	const bool secure = strncmp(ZSTR_VAL(uri), "https:", 6) == 0;
	const char *scheme = strstr(ZSTR_VAL(uri), "://");
	const char *target = scheme == NULL ? ZSTR_VAL(uri) : scheme + 3 + MIN(ZSTR_LEN(host), strlen(scheme + 3));
	add_string(into, SCRIPT_FILENAME, script_file);
	add_string(into, SCRIPT_NAME, script_name);
	add_string(into, PHP_SELF, script_name);
	add_string(into, DOCUMENT_ROOT, document_root);
	add_text(into, GATEWAY_INTERFACE, "CGI/1.1", 7);
	add_text(into, SERVER_SOFTWARE, "Pronghorn", 9);
	add_string(into, REQUEST_METHOD, text(slots->method, "method"));
	add_text(into, REQUEST_URI, target, strlen(target));
	add_string(into, QUERY_STRING, text(slots->query, "queryString"));
	add_string(into, SERVER_PROTOCOL, text(slots->protocol, "protocol"));
	add_string(into, REMOTE_ADDR, text(slots->remote, "remoteAddress"));
	add_text(into, REQUEST_SCHEME, secure ? "https" : "http", secure ? 5 : 4);
	if (secure) {
		add_text(into, HTTPS, "on", 2);
	}
	add_address(into, secure);
	add_attributes(into);
	const zend_string *fields = text(slots->fields, "uri");
	const char *at = ZSTR_VAL(fields), *end = at + ZSTR_LEN(fields), *name;
	char *value;
	while (next_field(&at, end, &name, &value)) {
		add_field(into, name, value);
	}
}

static void register_server_variables(zval *into)
{
	zend_array_destroy(Z_ARR_P(into));
	Z_ARR_P(into) = server == NULL ? environment_now() : zend_array_dup(server);
	if (call.request != NULL) {
		add_variables(into);
	}
}

static const char *const filter_names[] = {"filter_has_var", "filter_input", "filter_input_array"};
#define FILTERS (sizeof filter_names / sizeof *filter_names)
static zif_handler filters[FILTERS];

/* A form that the server has taken apart did not go through the filter either. Names are those of
 * fields: `a[b]`. */
static void filter_fields(zend_array *fields, const zend_string *above)
{
	zend_ulong number;
	zend_string *key;
	zval *value;
	ZEND_HASH_FOREACH_KEY_VAL(fields, number, key, value) {
		zend_string *own = key == NULL ? zend_long_to_str((zend_long) number) : zend_string_copy(key);
		zend_string *name = above == NULL ? zend_string_copy(own) : strpprintf(0, "%s[%s]", ZSTR_VAL(above), ZSTR_VAL(own));
		if (Z_TYPE_P(value) == IS_ARRAY) {
			filter_fields(Z_ARRVAL_P(value), name);
		} else if (Z_TYPE_P(value) == IS_STRING) {
			size_t length = Z_STRLEN_P(value);
			char *filtered = estrndup(Z_STRVAL_P(value), length);
			sapi_module.input_filter(PARSE_POST, ZSTR_VAL(name), &filtered, length, &length);
			efree(filtered);
		}
		zend_string_release(own);
		zend_string_release(name);
	} ZEND_HASH_FOREACH_END();
}

/* `filter_input()` and its like. */
static ZEND_FUNCTION(pronghorn_filter)
{
	const zval *fields = &PG(http_globals)[TRACK_VARS_POST];
	if (call.request != NULL && !call.is_form_filtered && is_of_parts() && Z_TYPE_P(fields) == IS_ARRAY) {
		call.is_form_filtered = true;
		filter_fields(Z_ARRVAL_P(fields), NULL);
	}
	if (is_filtered_late && !is_filtered && call.request != NULL) {
		/* It puts them into this array itself. */
		zval *server_variables = &PG(http_globals)[TRACK_VARS_SERVER], kept;
		ZVAL_COPY_VALUE(&kept, server_variables);
		array_init(server_variables);
		is_filtered = true;
		add_variables(server_variables);
		zval_ptr_dtor(server_variables);
		ZVAL_COPY_VALUE(server_variables, &kept);
	}
	for (size_t i = 0; i < FILTERS; i++) {
		if (strcmp(ZSTR_VAL(EX(func)->common.function_name), filter_names[i]) == 0) {
			filters[i](INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

static void watch_filters(void)
{
	is_filtered_late = true;
	for (size_t i = 0; i < FILTERS; i++) {
		watch_function(filter_names[i], ZEND_FN(pronghorn_filter), &filters[i]);
		is_filtered_late = is_filtered_late && filters[i] != NULL;
	}
	const char *by_default = INI_STR("filter.default");
	is_filtered_late = is_filtered_late && (by_default == NULL || *by_default == '\0' || strcmp(by_default, "unsafe_raw") == 0);
}

/* ---- Sessions ---- */

#ifdef HAVE_PHP_SESSION
/* NULL: the module is not there. */
static php_ps_globals *session;
static zval save_handlers[SESSION_FUNCTIONS];
static zend_string *session_global;

static void call_quietly(const char *name)
{
	zval function, result;
	ZVAL_STRING(&function, name);
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, &function, &result, 0, NULL);
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&function);
}

static void find_session(void)
{
	session = session_globals();
	if (session == NULL) {
		return;
	}
	for (size_t i = 0; i < SESSION_FUNCTIONS; i++) {
		ZVAL_COPY(&save_handlers[i], session_functions(session) + i);
	}
	session_global = zend_string_init(ZEND_STRL("_SESSION"), false);
	/* It is looked up as a known one. */
	zend_string_hash_val(session_global);
}

/* PHP writes what there is of a session whose values could not all be serialised. At the end of its
 * request such a value is a fatal error, before anything is written; here the session stays as it
 * was as well. */
static const ps_module *written_by;
static ps_module whole_only;

static PS_WRITE_FUNC(whole_only)
{
	return EG(exception) == NULL ? written_by->s_write(mod_data, key, val, maxlifetime) : SUCCESS;
}

static PS_UPDATE_TIMESTAMP_FUNC(whole_only)
{
	return EG(exception) == NULL ? written_by->s_update_timestamp(mod_data, key, val, maxlifetime) : SUCCESS;
}

static void write_session(void)
{
	if (session == NULL || session->session_status != php_session_active) {
		return;
	}
	const ps_module *of_php = session->mod;
	if (of_php != NULL) {
		whole_only = *of_php;
		whole_only.s_write = ps_write_whole_only;
		whole_only.s_update_timestamp = of_php->s_update_timestamp == NULL ? NULL : ps_update_timestamp_whole_only;
		written_by = of_php;
		session->mod = &whole_only;
	}
	call_quietly("session_write_close");
	if (session->mod == &whole_only) {
		session->mod = of_php;
	}
	tell_exception();
	if (session->session_status == php_session_active) {
		call_quietly("session_abort");
		tell_exception();
	}
}

static bool is_function_as_kept(size_t i)
{
	const zval *now = session_functions(session) + i;
	return Z_TYPE_P(now) == Z_TYPE(save_handlers[i]) && (Z_TYPE_P(now) <= IS_TRUE || Z_COUNTED_P(now) == Z_COUNTED(save_handlers[i]));
}

/* PHP sets all functions of a handler: where there was none, a look at the first is enough. */
static bool is_save_handler_as_kept(void)
{
	const size_t count = EXPECTED(Z_TYPE(save_handlers[0]) == IS_UNDEF) ? 1 : SESSION_FUNCTIONS;
	for (size_t i = 0; i < count; i++) {
		if (UNEXPECTED(!is_function_as_kept(i))) {
			return false;
		}
	}
	return true;
}

static void restore_save_handler(void)
{
	for (size_t i = 0; i < SESSION_FUNCTIONS; i++) {
		if (!is_function_as_kept(i)) {
			zval *now = session_functions(session) + i, before;
			ZVAL_COPY_VALUE(&before, now);
			ZVAL_COPY(now, &save_handlers[i]);
			zval_ptr_dtor(&before);
		}
	}
}

/* For calls that are no requests, whose sessions PHP code closes. */
static bool forget_save_handler(void)
{
	if (session == NULL || session->session_status == php_session_active || is_save_handler_as_kept()) {
		return false;
	}
	restore_save_handler();
	return true;
}

static void forget_session(void)
{
	if (session == NULL) {
		return;
	}
	write_session();
	if (session->id != NULL) {
		zend_string_release(session->id);
		session->id = NULL;
	}
	zend_hash_del(&EG(symbol_table), session_global);
	if (Z_TYPE(session->http_session_vars) != IS_UNDEF) {
		zval variables;
		ZVAL_COPY_VALUE(&variables, &session->http_session_vars);
		ZVAL_UNDEF(&session->http_session_vars);
		zval_ptr_dtor(&variables);
	}
	restore_save_handler();
	tell_exception();
}

static bool has_session(void)
{
	return session != NULL && (session->session_status == php_session_active || session->id != NULL
		|| Z_TYPE(session->http_session_vars) != IS_UNDEF || zend_hash_find_known_hash(&EG(symbol_table), session_global) != NULL
		|| !is_save_handler_as_kept());
}

static void let_session_go(void)
{
	if (session != NULL) {
		for (size_t i = 0; i < SESSION_FUNCTIONS; i++) {
			zval_ptr_dtor(&save_handlers[i]);
		}
		zend_string_release(session_global);
		session = NULL;
	}
}

static void begin_session(void)
{
	if (session != NULL && UNEXPECTED(session->auto_start)) {
		call_quietly("session_start");
		tell_exception();
	}
}
#else
static void find_session(void)
{
}

static void write_session(void)
{
}

static bool forget_save_handler(void)
{
	return false;
}

static void let_session_go(void)
{
}

static void forget_session(void)
{
}

static bool has_session(void)
{
	return false;
}

static void begin_session(void)
{
}
#endif

/* ---- Its reply ---- */

static size_t write_output(const char *text, size_t length)
{
	if (call.request == NULL || reply_has_ended()) {
		return printed_write(text, length);
	}
	if (UNEXPECTED(EG(exception) != NULL) && zend_is_unwind_exit(EG(exception))) {
		/* An output callback has not come to its end, and PHP gives what it was to change. */
		return length;
	}
	if (!reply_write(text, length)) {
		printed_to_nobody();
	}
	return length;
}

static void flush_output(void *context)
{
	(void) context;
	if (call.request != NULL && !reply_has_ended() && !reply_flush()) {
		printed_to_nobody();
	}
}

/* A handler's head goes out with what it returns. */
static int keep_headers(sapi_headers_struct *headers)
{
	(void) headers;
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static bool has_field(zend_array *headers, const char *name, size_t length)
{
	zend_string *known;
	ZEND_HASH_FOREACH_STR_KEY(headers, known) {
		if (known != NULL && ZSTR_LEN(known) == length && strncasecmp(ZSTR_VAL(known), name, length) == 0) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

/* What the handler has returned wins, but for cookies, of which there may be any number. */
static void add_header(zend_array *into, zend_array *returned, const sapi_header_struct *field)
{
	size_t name_length, length;
	const char *value;
	if (!head_split(field, &name_length, &value, &length)) {
		return;
	}
	const bool is_cookie = name_length == 10 && strncasecmp(field->header, "Set-Cookie", 10) == 0;
	const bool is_type = name_length == sizeof HEAD_TYPE - 1 && strncasecmp(field->header, ZEND_STRL(HEAD_TYPE)) == 0;
	if (!is_cookie && has_field(returned, field->header, name_length)) {
		return;
	}
	zend_string *name;
	zval *there = NULL, *of;
	ZEND_HASH_FOREACH_STR_KEY_VAL(into, name, of) {
		if (name != NULL && ZSTR_LEN(name) == name_length && strncasecmp(ZSTR_VAL(name), field->header, name_length) == 0) {
			there = of;
		}
	} ZEND_HASH_FOREACH_END();
	if (there == NULL) {
		zval list;
		array_init(&list);
		there = zend_hash_str_update(into, field->header, name_length, &list);
	} else if (is_type) {
		return; /* there is one, as in head_send() */
	} else {
		convert_to_array(there);
		SEPARATE_ARRAY(there);
	}
	add_next_index_stringl(there, value, length);
}

static zend_array *without_length(zend_array *headers)
{
	zend_array *rest = zend_new_array(zend_hash_num_elements(headers));
	zend_string *name;
	zend_ulong number;
	zval *value;
	ZEND_HASH_FOREACH_KEY_VAL(headers, number, name, value) {
		if (name == NULL) {
			Z_TRY_ADDREF_P(value);
			zend_hash_index_add_new(rest, number, value);
		} else if (!zend_string_equals_literal_ci(name, "Content-Length")) {
			Z_TRY_ADDREF_P(value);
			zend_hash_add_new(rest, name, value);
		}
	} ZEND_HASH_FOREACH_END();
	return rest;
}

/* What header_register_callback() was given. */
static bool has_head_callback(void)
{
#if PHP_VERSION_ID >= 80600
	return ZEND_FCC_INITIALIZED(SG(send_header_fcc));
#else
	return Z_TYPE(SG(callback_func)) != IS_UNDEF;
#endif
}

static void forget_head_callback(void)
{
	if (EXPECTED(!has_head_callback())) {
		return;
	}
#if PHP_VERSION_ID >= 80600
	zend_fcc_dtor(&SG(send_header_fcc));
#else
	zval_ptr_dtor(&SG(callback_func));
	ZVAL_UNDEF(&SG(callback_func));
#endif
}

void requests_call_back_for_head(bool has_type)
{
	if (EXPECTED(!has_head_callback())) {
		return;
	}
	if (!has_type) {
		SG(sapi_headers).send_default_content_type = 0;
	}
	sapi_send_headers();
	tell_exception();
}

/* Whether PHP adds the type that the server adds where a reply has none. */
static bool has_default_type(void)
{
	const char *type = SG(default_mimetype), *charset = SG(default_charset);
	return SG(sapi_headers).send_default_content_type && (type == NULL || strcmp(type, SAPI_DEFAULT_MIMETYPE) == 0)
		&& (charset == NULL || strcmp(charset, SAPI_DEFAULT_CHARSET) == 0);
}

/* PHP's own default, where nothing else has named one: of what it has is none, an empty one says
 * so. */
static void add_type(zend_array *into)
{
	if (has_field(into, ZEND_STRL(HEAD_TYPE))) {
		return;
	}
	zval value;
	if (SG(sapi_headers).send_default_content_type) {
		char *type = sapi_get_default_content_type();
		ZVAL_STRING(&value, type);
		efree(type);
	} else {
		ZVAL_EMPTY_STRING(&value);
	}
	zend_hash_str_add_new(into, ZEND_STRL(HEAD_TYPE), &value);
}

zend_array *requests_head(uint16_t *status, zend_array *headers, bool has_length, bool has_type)
{
	sapi_headers_struct *of_php = &SG(sapi_headers);
	if (*status == 200 && of_php->http_response_code >= 200) {
		*status = (uint16_t) head_status(of_php->http_response_code);
	}
	SG(headers_sent) = 1;
	const bool is_empty = *status == 204 || *status == 304;
	const bool needs_type = has_type && !is_empty && UNEXPECTED(!has_default_type());
	if (EXPECTED(zend_llist_count(&of_php->headers) == 0 && has_length && !needs_type)) {
		GC_TRY_ADDREF(headers);
		return headers;
	}
	zend_array *all = has_length ? zend_array_dup(headers) : without_length(headers);
	zend_llist_position at;
	for (sapi_header_struct *field = zend_llist_get_first_ex(&of_php->headers, &at); field != NULL;
		field = zend_llist_get_next_ex(&of_php->headers, &at)) {
		if (!has_length && strncasecmp(field->header, ZEND_STRL("Content-Length:")) == 0) {
			continue;
		}
		/* PHP adds its default type to whatever is printed; what has no content has none. */
		if (!is_empty || strncasecmp(field->header, ZEND_STRL(HEAD_TYPE ":")) != 0) {
			add_header(all, headers, field);
		}
	}
	if (needs_type) {
		add_type(all);
	}
	return all;
}

bool requests_reply(uint8_t flags)
{
	php_output_end_all();
	php_header();
	return reply_end(flags);
}

/* ---- Its life ---- */

static void begin_output(void)
{
	if (style == FRONT) {
		php_output_deactivate();
		php_output_activate();
		if (PG(output_buffering) > 0) {
			php_output_start_user(NULL, PG(output_buffering) > 1 ? (size_t) PG(output_buffering) : 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		} else if (PG(implicit_flush)) {
			php_output_set_implicit_flush(1);
		}
	}
}

void requests_begin(zend_object *request, zend_object *body)
{
	call.request = request;
	GC_ADDREF(request);
	call.body = body;
	if (body != NULL) {
		GC_ADDREF(body);
	}
	call.cookies = NULL;
	call.content_type = call.content_length = call.authorization = NULL;
	call.taken = 0;
	call.is_form_filtered = call.is_finished = false;
	SG(server_context) = &call;
	describe();
	/* First: the end of what was printed before sends headers. */
	begin_output();
	sapi_activate();
	/* A HEAD has its length from what GET would have; the server leaves out the body. */
	SG(request_info).headers_only = false;
	SG(sapi_headers).http_response_code = 200;
	const zval *started = OBJ_PROP(request, slots->started_at);
	SG(global_request_time) = Z_TYPE_P(started) == IS_LONG ? (double) Z_LVAL_P(started) / 1e6 : 0;
	make_globals();
	if (UNEXPECTED(EG(timeout_seconds) > 0)) {
		zend_unset_timeout();
		zend_set_timeout(EG(timeout_seconds), false);
	}
	begin_session();
}

bool requests_have_end(void)
{
	return reset_has_shutdown_functions() || has_session();
}

void requests_finish(void)
{
	if (call.request == NULL || call.is_finished) {
		return;
	}
	call.is_finished = true;
	reset_run_shutdown_functions();
	if (UNEXPECTED(EG(exception) != NULL) && !zend_is_unwind_exit(EG(exception))) {
		/* As PHP does it at an error that nobody has caught. */
		const bool is_said = PG(display_errors) == PHP_DISPLAY_ERRORS_STDOUT || SG(headers_sent);
		if (!is_said && SG(sapi_headers).http_response_code == 200) {
			SG(sapi_headers).http_response_code = 500;
		}
	}
	tell_exception();
	write_session();
}

bool requests_last(zval *tell)
{
	printed_recover();
	if (call.request == NULL) {
		return false;
	}
	requests_finish();
	if (style != FRONT || reply_has_begun() || reply_has_ended()) {
		return false;
	}
	zval length;
	const bool has_output = reply_has_body() || (php_output_get_length(&length) == SUCCESS && Z_LVAL(length) > 0);
	if (!has_output) {
		return false;
	}
	zval result;
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, tell, &result, 0, NULL);
	zval_ptr_dtor(&result);
	php_output_end_all();
	php_header();
	/* PHP takes them for sent as soon as something is printed. */
	if (SG(sapi_headers).http_response_code == 200) {
		reply_set_status(500);
	}
	return reply_end(NATIVE_LEAVING);
}

/* What the filter extension keeps of the request. */
static void forget_filtered(void)
{
	static const zend_module_entry *filter;
	if (filter == NULL) {
		filter = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("filter"));
	}
	is_filtered = false;
	if (filter != NULL && filter->request_shutdown_func != NULL) {
		filter->request_shutdown_func(filter->type, filter->module_number);
	}
}

static void forget_info(void)
{
	sapi_request_info *info = &SG(request_info);
	SG(server_context) = NULL;
	SG(sapi_headers).http_response_code = 200;
	info->request_method = info->content_type = NULL;
	info->query_string = info->cookie_data = info->request_uri = NULL;
	info->content_length = 0;
	/* PHP has freed these. */
	info->auth_user = info->auth_password = info->auth_digest = NULL;
	info->content_type_dup = NULL;
	info->current_user = NULL;
}

/* What code of the application finds by a name. First, because destructors may run, and open a
 * session; those of the session's own values may open another. */
static void forget_values(void)
{
	is_unsettled |= reset_has_shutdown_functions();
	reset_run_shutdown_functions();
	tell_exception();
	empty_globals();
	tell_exception();
	for (int times = 0; times < 2 && UNEXPECTED(has_session()); times++) {
		is_unsettled = true;
		forget_session();
	}
}

/* Whether it is that array; so is one that nobody has asked for. */
static bool is_shared(unsigned global, const zend_array *array)
{
	const zval *value = array == NULL || is_made_late(global) ? NULL : find_global(global);
	return value == NULL || (Z_TYPE_P(value) == IS_ARRAY && Z_ARR_P(value) == array);
}

/* Whether something is there that the next call would find. */
static bool is_left(void)
{
	for (unsigned global = GET; global <= REQUEST; global++) {
		const zval *value = global == REQUEST && is_made_late(REQUEST) ? NULL : find_global(global);
		if (UNEXPECTED(value != NULL && (Z_TYPE_P(value) != IS_ARRAY || zend_hash_num_elements(Z_ARRVAL_P(value)) > 0))) {
			return true;
		}
	}
	if (UNEXPECTED(!is_shared(SERVER, server) || !is_shared(ENVIRONMENT, environment))) {
		return true;
	}
	return has_session() || reset_has_shutdown_functions() || has_head_callback() || reset_is_due();
}

void requests_unsettled(void)
{
	is_unsettled = true;
}

bool requests_settle(void)
{
	/* Each round runs destructors, which may leave things as the ones before did. */
	enum { ROUNDS = 10 };
	if (EXPECTED(!is_unsettled)) {
		return true;
	}
	for (int round = 0; style != OFF && is_left(); round++) {
		if (round == ROUNDS) {
			fprintf(stderr, "pronghorn: destructors of a request leave sessions, handlers or settings without an end: this worker leaves\n");
			return false;
		}
		forget_values();
		forget_head_callback();
		reset_restore();
	}
	is_unsettled = false;
	return true;
}

void requests_end(void)
{
	if (style == OFF) {
		return;
	}
	forget_values();
	is_unsettled |= has_head_callback();
	if (call.request != NULL) {
		begin_output();
		SG(post_read) = 1;
		forget_body();
		forget_filtered();
		forget_head_callback();
		sapi_deactivate();
		forget_info();
		if (call.joined != NULL) {
			zend_string_release(call.joined);
			call.joined = NULL;
		}
		if (call.body != NULL) {
			OBJ_RELEASE(call.body);
			call.body = NULL;
		}
		zend_object *request = call.request;
		call.request = NULL;
		OBJ_RELEASE(request);
	}
	is_unsettled |= reset_restore();
}

static void (*report_error)(int, zend_string *, const uint32_t, zend_string *);

/* A message for stderr is a record of the log, not HTML, which PHP writes into the page. */
static void on_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	const bool is_html = PG(html_errors);
	PG(html_errors) = is_html && PG(display_errors) != PHP_DISPLAY_ERRORS_STDERR;
	report_error(type, file, line, message);
	PG(html_errors) = is_html;
}

static zend_auto_global_callback make_server;

/* PHP's command line asks for $_SERVER at its start, and never again. That one does not count, so
 * that it is made for code that wants it, as under a web server. It is taken away again: OPcache
 * takes all files that are compiled while it is there for such code, and functions such as
 * ob_gzhandler() look for the fields of a request in PHP's own copy. */
static bool make_server_late(zend_string *name)
{
	static bool was_asked;
	const bool is_start = !was_asked && EG(current_execute_data) == NULL && !CG(in_compilation) && strcmp(sapi_module.name, "cli") == 0;
	was_asked = true;
	const bool is_armed = make_server(name);
	if (is_start) {
		zend_hash_del(&EG(symbol_table), name);
		zval_ptr_dtor(&PG(http_globals)[TRACK_VARS_SERVER]);
		ZVAL_UNDEF(&PG(http_globals)[TRACK_VARS_SERVER]);
	}
	return is_armed || is_start;
}

/* php-fpm has them, the command line has not. */
static ZEND_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();

	array_init(return_value);
	if (call.request == NULL) {
		return;
	}
	zval variables, *value;
	zend_string *name;
	array_init(&variables);
	add_variables(&variables);
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL(variables), name, value) {
		if (name != NULL && Z_TYPE_P(value) == IS_STRING) {
			/* It takes the name apart where it is. */
			char *own = estrndup(ZSTR_VAL(name), ZSTR_LEN(name));
			sapi_add_request_header(own, (unsigned) ZSTR_LEN(name), Z_STRVAL_P(value), (unsigned) Z_STRLEN_P(value), return_value);
			efree(own);
		}
	} ZEND_HASH_FOREACH_END();
	zval_ptr_dtor(&variables);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_FE(apache_request_headers, arginfo_headers)
	ZEND_FALIAS(getallheaders, apache_request_headers, arginfo_headers)
	ZEND_FE_END
};

void requests_startup(void)
{
	const bool is_worker = getenv("PRONGHORN_PIPES") != NULL || getenv("PRONGHORN_ZYGOTE") != NULL;
	if (is_worker && strcmp(sapi_module.name, "cli") == 0) {
		zend_register_functions(NULL, functions, NULL, MODULE_PERSISTENT);
	}
	for (size_t i = 0; i < GLOBALS; i++) {
		globals[i].name = zend_string_init_interned(globals[i].text, strlen(globals[i].text), true);
	}
	for (size_t i = 0; i < VARIABLES; i++) {
		names[i] = zend_string_init_interned(variable_names[i], strlen(variable_names[i]), true);
	}
	watch_filters();
	zend_auto_global *of_server = zend_hash_find_ptr(CG(auto_globals), globals[SERVER].name);
	if (of_server != NULL && of_server->jit) {
		make_server = of_server->auto_global_callback;
		of_server->auto_global_callback = make_server_late;
	}
	reset_startup();
}

void requests_take_over(const native_slots *of, bool front, zval *form)
{
	if (style != OFF) {
		return;
	}
	slots = of;
	style = front ? FRONT : HANDLER;
	call.file = -1;
	leftovers_look_away();
	for (size_t i = 0; i < GLOBALS; i++) {
		globals[i].maker = zend_hash_find_ptr(CG(auto_globals), globals[i].name);
	}
	ZVAL_COPY(&form_reader, form);
	name_script();
	keep_server();
	const zval *now = is_made_late(ENVIRONMENT) ? NULL : find_global(ENVIRONMENT);
	if (now != NULL && Z_TYPE_P(now) == IS_ARRAY) {
		environment = Z_ARRVAL_P(now);
		GC_TRY_ADDREF(environment);
	}
	find_session();
	command_line = sapi_module;
	sapi_module.activate = NULL;
	sapi_module.deactivate = NULL;
	sapi_module.header_handler = NULL;
	sapi_module.send_headers = front ? head_send : keep_headers;
	sapi_module.read_post = read_body;
	sapi_module.read_cookies = read_cookies;
	sapi_module.register_server_variables = register_server_variables;
	if (front) {
		php_output_end_all();
		sapi_module.ub_write = write_output;
		sapi_module.flush = flush_output;
	}
	/* A handler finds the worker's arguments in $_SERVER, as before. A front controller finds none,
	 * as under a web server: the words of a query are no arguments of a program. */
	const bool has_arguments = PG(register_argc_argv) && !front;
	classic_ini_restore_kept();
	PG(register_argc_argv) = has_arguments;
	if (!has_arguments) {
		/* PHP 8.6 asks for no setting where there are some. */
		SG(request_info).argc = 0;
	}
	report_error = zend_error_cb;
	zend_error_cb = on_error;
	reset_keep();
	requests_end();
}

void requests_let_go(void)
{
	reset_let_go();
	let_session_go();
}

void requests_keep(void)
{
	requests_let_go();
	find_session();
	reset_keep();
}

bool requests_reset(void)
{
	bool any = reset_has_shutdown_functions() || has_head_callback();
	reset_run_shutdown_functions();
	tell_exception();
	forget_head_callback();
	any |= forget_save_handler();
	any |= reset_restore();
	return any;
}

void requests_give_back(void)
{
	if (style == OFF) {
		return;
	}
	style = OFF;
	sapi_module = command_line;
	if (zend_error_cb == on_error) {
		zend_error_cb = report_error;
	}
	SG(server_context) = NULL;
	if (call.request != NULL) {
		/* Ended by a fatal error. */
		forget_body();
		sapi_deactivate();
		forget_info();
		OBJ_RELEASE(call.request);
		call.request = NULL;
	}
	zval_ptr_dtor(&form_reader);
	zend_string_release(script_file);
	zend_string_release(script_name);
	zend_string_release(document_root);
	if (server != NULL) {
		zend_array_release(server);
		server = NULL;
	}
	if (environment != NULL) {
		zend_array_release(environment);
		environment = NULL;
	}
	let_session_go();
}
