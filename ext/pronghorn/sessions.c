/* PHP's save handler `pronghorn`: a session is an entry of a storage in memory, and so is the lock
 * of the request that has it open; in other storages the server is asked for both (asked.c). A
 * holder that was killed is found by its number and by when its process started, so nobody waits
 * for the dead. Ids come from cookies: they are checked before
 * they are parts of keys, and never written to a log. */
#include "php.h"
#include "sessions.h"

#include "session.h"

#ifdef HAVE_PHP_SESSION

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/random.h>
#include <syslog.h>
#include <unistd.h>

#include "SAPI.h"
#include "php_ini.h"

#include "asked.h"
#include "cache.h"
#include "pending.h"

/* The one that is taken where `session.save_path` names none. */
#define USUAL_STORAGE "sessions"
#define DATA_PREFIX "session:"
#define LOCK_PREFIX "session-lock:"
/* PHP's own limit. */
#define LONGEST_ID 256
/* Milliseconds after which the log says who is waited for. */
#define LONG_WAIT 1000
/* Microseconds between two looks at a lock that another one has: the first, and the longest. */
#define FIRST_LOOK 100
#define LONGEST_LOOK 5000
/* Milliseconds between two looks at whether the holder is another process of the same number. */
#define LOOK_AT_HOLDER 50
/* An entry is written again for its end alone once a part of its time is over. */
#define PARTS 8

typedef struct {
	uint64_t process, started, token;
	uint64_t since; /* milliseconds of cache_now() */
	char doing[160]; /* what its request is, for the log */
} holder;

/* What PHP keeps for us between open and close. */
typedef struct {
	const cache_segment *segment; /* NULL: the server is asked */
	asked asked;
	zend_string *locked; /* the id; NULL: none */
	holder mine;
} opened;

typedef struct {
	char bytes[sizeof LOCK_PREFIX + LONGEST_ID];
	size_t length;
} session_key;

static zend_string *(*create_id)(PS_CREATE_SID_ARGS);

static const char *chars_of_string(const zend_string *text)
{
	return text == NULL ? "" : ZSTR_VAL(text);
}

static const char *chars_of_chars(const char *text)
{
	return text == NULL ? "" : text;
}

/* Releases of PHP differ in how they give a text. */
#define CHARS(text) _Generic((text), zend_string *: chars_of_string, const zend_string *: chars_of_string, default: chars_of_chars)(text)

/* ---- Keys ---- */

/* False: PHP makes no such id. */
static bool key_of(session_key *key, const char *prefix, const zend_string *id)
{
	const size_t before = strlen(prefix);
	if (ZSTR_LEN(id) == 0 || ZSTR_LEN(id) > LONGEST_ID) {
		return false;
	}
	for (size_t i = 0; i < ZSTR_LEN(id); i++) {
		const char byte = ZSTR_VAL(id)[i];
		if (!isalnum((unsigned char) byte) && byte != ',' && byte != '-') {
			return false;
		}
	}
	memcpy(key->bytes, prefix, before);
	memcpy(key->bytes + before, ZSTR_VAL(id), ZSTR_LEN(id));
	key->length = before + ZSTR_LEN(id);
	return true;
}

/* ---- Who has the lock ---- */

/* When the process was started, in the kernel's units; 0: it is not to be found out, 1: it has
 * ended, and nobody has asked how. */
static uint64_t start_of(uint64_t process)
{
	char path[32], text[512];
	snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", process);
	const int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return 0;
	}
	const ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	text[length > 0 ? length : 0] = '\0';
	/* The name before may have any bytes, also spaces and brackets. */
	const char *at = strrchr(text, ')');
	if (at == NULL || at[1] == '\0') {
		return 0;
	}
	if (at[2] == 'Z' || at[2] == 'X') {
		return 1;
	}
	unsigned long long started = 0;
	return sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &started) == 1 ? started : 0;
}

static bool is_gone(const holder *of)
{
	return of->process == 0 || of->process > INT_MAX || (kill((pid_t) of->process, 0) != 0 && errno == ESRCH);
}

/* Whether another process has its number now. */
static bool is_another(const holder *of)
{
	const uint64_t started = start_of(of->process);
	return started != 0 && of->started != 0 && started != of->started;
}

/* As the client has it, where PHP has made $_SERVER; else what the server API has, which may be the
 * script. */
static const char *request_target(void)
{
	const zval *server = &PG(http_globals)[TRACK_VARS_SERVER];
	const zval *target = Z_TYPE_P(server) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL_P(server), ZEND_STRL("REQUEST_URI")) : NULL;
	return target != NULL && Z_TYPE_P(target) == IS_STRING ? Z_STRVAL_P(target) : SG(request_info).request_uri;
}

/* What this request is, without its query and without bytes that would break a line. */
static void say_request(char *into, size_t size)
{
	const char *method = SG(request_info).request_method, *target = request_target();
	if (target == NULL) {
		snprintf(into, size, "a script");
		return;
	}
	const int begun = snprintf(into, size, "%.10s ", method == NULL ? "GET" : method);
	size_t at = (size_t) begun;
	for (; at < size - 1 && *target != '\0' && *target != '?'; target++) {
		into[at++] = isgraph((unsigned char) *target) ? *target : '?';
	}
	into[at] = '\0';
}

static void become_holder(holder *mine)
{
	static __thread uint64_t process, started;
	const uint64_t now = (uint64_t) getpid();
	if (process != now) {
		process = now;
		started = start_of(now);
	}
	*mine = (holder) {.process = process, .started = started, .since = cache_now()};
	/* Several threads and several sessions of one process are told apart by this. */
	if (getrandom(&mine->token, sizeof mine->token, GRND_NONBLOCK) != sizeof mine->token) {
		mine->token = (uint64_t) (uintptr_t) mine ^ mine->since;
	}
	say_request(mine->doing, sizeof mine->doing);
}

/* ---- The lock ---- */

typedef struct {
	holder other;
	bool look_closely;
} attempt;

/* Nobody has it, or who had it is dead. */
static bool is_free(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	attempt *trying = context;
	(void) entry;
	if (head == NULL || head->value_length != sizeof trying->other) {
		return true;
	}
	memcpy(&trying->other, value, sizeof trying->other);
	trying->other.doing[sizeof trying->other.doing - 1] = '\0';
	for (char *at = trying->other.doing; *at != '\0'; at++) {
		/* Of a process that scribbles. */
		*at = isprint((unsigned char) *at) ? *at : '?';
	}
	return is_gone(&trying->other) || (trying->look_closely && is_another(&trying->other));
}

static double seconds_since(uint64_t then)
{
	const uint64_t now = cache_now();
	return now < then ? 0 : (double) (now - then) / 1000;
}

static void tell_holder(const holder *other, const holder *mine)
{
	char line[600];
	snprintf(line, sizeof line, "%s waits for the lock of its session, which process %" PRIu64 " has for %.1f s: %s", mine->doing, other->process,
		seconds_since(other->since), other->doing);
	if (sapi_module.log_message != NULL) {
		sapi_module.log_message(line, LOG_NOTICE);
	}
}

/* Milliseconds; 0: for ever. */
static uint64_t patience(void)
{
	const double seconds = zend_ini_double(ZEND_STRL("pronghorn.session_lock_timeout"), false);
	return seconds > 0 ? (uint64_t) (seconds * 1000) : 0;
}

static bool no_room(void)
{
	php_error_docref(NULL, E_WARNING, "The storage of sessions has no room: give it a larger max_size");
	return false;
}

/* Waits until this request has the session alone. False: with a warning, or an exception. */
static bool take_lock(opened *of, zend_string *id)
{
	session_key key;
	attempt trying = {.look_closely = false};
	uint64_t looked_at = 0;
	unsigned look = FIRST_LOOK;
	bool is_told = false;
	if (!key_of(&key, LOCK_PREFIX, id)) {
		return false;
	}
	become_holder(&of->mine);
	cache_entry entry = {
		.key = key.bytes, .key_length = key.length, .value = &of->mine, .value_length = sizeof of->mine, .kind = CACHE_BYTES,
	};
	const uint64_t begun = of->mine.since;
	for (;;) {
		const cache_outcome outcome = cache_put(of->segment, &entry, is_free, &trying);
		if (outcome == CACHE_DONE) {
			of->locked = zend_string_copy(id);
			return true;
		}
		if (outcome != CACHE_DIFFERS) {
			return no_room();
		}
		const uint64_t now = cache_now(), most = patience();
		if (most != 0 && now - begun >= most) {
			php_error_docref(NULL, E_WARNING, "The session is locked by process %" PRIu64 " (%s) for %.1f s: waited %.1f s, which is pronghorn.session_lock_timeout",
				trying.other.process, trying.other.doing, seconds_since(trying.other.since), (double) (now - begun) / 1000);
			return false;
		}
		if (!is_told && now - begun >= LONG_WAIT) {
			tell_holder(&trying.other, &of->mine);
			is_told = true;
		}
		trying.look_closely = now - looked_at >= LOOK_AT_HOLDER;
		looked_at = trying.look_closely ? now : looked_at;
		usleep(look);
		look = look * 2 > LONGEST_LOOK ? LONGEST_LOOK : look * 2;
		if (!run_pending()) {
			return false;
		}
		of->mine.since = cache_now();
	}
}

static bool is_mine(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	const holder *mine = context;
	(void) entry;
	return head != NULL && head->value_length == sizeof *mine && memcmp(value, mine, sizeof *mine) == 0;
}

static void release_lock(opened *of)
{
	session_key key;
	if (of->locked == NULL) {
		return;
	}
	/* A child that was forked meanwhile leaves it to its parent. */
	const bool is_mine_still = of->mine.process == (uint64_t) getpid();
	if (is_mine_still && of->segment == NULL) {
		asked_close(&of->asked, of->locked);
	} else if (is_mine_still && key_of(&key, LOCK_PREFIX, of->locked)) {
		cache_delete_if(of->segment, key.bytes, key.length, is_mine, &of->mine);
	}
	zend_string_release(of->locked);
	of->locked = NULL;
}

/* ---- What PHP calls ---- */

/* Of `session_start(['read_and_close' => true])`: PHP tells no save handler. */
static bool is_read_only(void)
{
	zend_execute_data *frame = EG(current_execute_data);
	if (frame == NULL || frame->func == NULL || frame->func->type != ZEND_INTERNAL_FUNCTION || ZEND_CALL_NUM_ARGS(frame) < 1
		|| frame->func->common.function_name == NULL || !zend_string_equals_literal(frame->func->common.function_name, "session_start")) {
		return false;
	}
	zval *options = ZEND_CALL_ARG(frame, 1);
	ZVAL_DEREF(options);
	zval *asked = Z_TYPE_P(options) == IS_ARRAY ? zend_hash_str_find_deref(Z_ARRVAL_P(options), ZEND_STRL("read_and_close")) : NULL;
	return asked != NULL && zval_get_long(asked) > 0;
}

/* The storage: that of `save_path`, where it has the name of one. A path is of a php.ini that was
 * made for files. */
static bool choose_storage(opened *of, const char *path)
{
	const bool is_named = *path != '\0' && strchr(path, '/') == NULL;
	const char *name = is_named ? path : USUAL_STORAGE;
	of->segment = cache_find(name);
	of->asked.storage = of->segment == NULL ? asked_find(name) : NULL;
	if (of->segment == NULL && of->asked.storage == NULL && !is_named) {
		of->segment = cache_find(NULL);
		of->asked.storage = of->segment == NULL ? asked_find(NULL) : NULL;
	}
	if (of->segment != NULL || of->asked.storage != NULL) {
		return true;
	}
	if (is_named) {
		php_error_docref(NULL, E_WARNING, "session.save_path names no storage that this process has mapped or may ask for: %.100s", path);
	} else {
		php_error_docref(NULL, E_WARNING, "This process has mapped no storage named " USUAL_STORAGE " and not exactly one other: write `kv: {" USUAL_STORAGE
			": {driver: memory}}`, or name a storage by session.save_path");
	}
	return false;
}

static void close_session(void **mod_data)
{
	opened *of = PS_GET_MOD_DATA();
	if (of != NULL) {
		release_lock(of);
		efree(of);
		PS_SET_MOD_DATA(NULL);
	}
}

PS_OPEN_FUNC(pronghorn)
{
	(void) session_name;
	close_session(mod_data);
	opened chosen = {0};
	if (!choose_storage(&chosen, CHARS(save_path))) {
		return FAILURE;
	}
	opened *of = emalloc(sizeof *of);
	*of = chosen;
	PS_SET_MOD_DATA(of);
	return SUCCESS;
}

PS_CLOSE_FUNC(pronghorn)
{
	close_session(mod_data);
	return SUCCESS;
}

/* A session that is read is known from then on, as with a file, which is made when it is opened:
 * strict mode asks for that, and who only reads it, or aborts it, writes nothing. */
static bool makes_known(void)
{
	return session_globals()->use_strict_mode;
}

static bool ask_server(opened *of, zend_string *id, bool is_read_only, zend_long lifetime, zend_string **value)
{
	const asker me = {.process = of->mine.process, .started = of->mine.started, .doing = of->mine.doing};
	if (!asked_open(&of->asked, id, is_read_only, &me, patience(), lifetime, value)) {
		return false;
	}
	of->locked = of->asked.token == 0 ? NULL : zend_string_copy(id);
	return true;
}

/* Of the server, which waits for the lock. */
static bool ask_for(opened *of, zend_string *id, zend_long lifetime, zend_string **value)
{
	const bool read_only = is_read_only();
	become_holder(&of->mine);
	if (!ask_server(of, id, read_only, lifetime, value)) {
		return false;
	}
	if (of->asked.is_there || !makes_known()) {
		return true;
	}
	/* With the lock, or it would take the place of what another one writes meanwhile. */
	if (read_only && !ask_server(of, id, false, lifetime, value)) {
		return false;
	}
	if (!of->asked.is_there) {
		if (!asked_write(&of->asked, id, ZSTR_EMPTY_ALLOC(), lifetime, false)) {
			return false;
		}
		of->asked.is_young = true;
	}
	if (read_only) {
		release_lock(of);
	}
	return true;
}

static uint64_t end_of(zend_long lifetime)
{
	return cache_now() + (uint64_t) (lifetime < 1 ? 1 : lifetime) * 1000;
}

static bool keep(const opened *of, const zend_string *id, const zend_string *value, zend_long lifetime, cache_condition *condition)
{
	session_key key;
	if (of == NULL || !key_of(&key, DATA_PREFIX, id)) {
		return false;
	}
	/* Also without values: the number was given, and strict mode asks for that. */
	cache_entry entry = {
		.key = key.bytes, .key_length = key.length, .value = ZSTR_VAL(value), .value_length = ZSTR_LEN(value), .kind = CACHE_BYTES,
		.ends = end_of(lifetime),
	};
	switch (cache_put(of->segment, &entry, condition, &lifetime)) {
		case CACHE_DONE:
		case CACHE_DIFFERS:
			return true;
		case CACHE_TOO_LONG:
			php_error_docref(NULL, E_WARNING, "The session has %zu bytes, and an entry of its storage at most %" PRIu64 ": give the storage a larger max_size",
				ZSTR_LEN(value), of->segment->block_size);
			return false;
		default:
			return no_room();
	}
}

static bool is_missing(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	(void) context, (void) value, (void) entry;
	return head == NULL;
}

PS_READ_FUNC(pronghorn)
{
	opened *of = PS_GET_MOD_DATA();
	session_key data;
	cache_head head;
	if (of == NULL) {
		return FAILURE;
	}
	if (!key_of(&data, DATA_PREFIX, key)) {
		php_error_docref(NULL, E_WARNING, "The session id is too long or has illegal characters: only letters, digits, \"-\" and \",\" are allowed");
		return FAILURE;
	}
	release_lock(of);
	if (of->segment == NULL) {
		return ask_for(of, key, maxlifetime, val) ? SUCCESS : FAILURE;
	}
	if (!is_read_only() && !take_lock(of, key)) {
		return FAILURE;
	}
	if (!cache_fetch(of->segment, data.bytes, data.length, &head, val)) {
		*val = ZSTR_EMPTY_ALLOC();
		if (makes_known()) {
			keep(of, key, *val, maxlifetime, is_missing);
		}
	}
	return SUCCESS;
}

PS_WRITE_FUNC(pronghorn);

/* PHP closes a session that it has written, and a handler of PHP code may write several times. */
static bool is_last_write(void)
{
	const ps_module *mod = session_globals()->mod;
	return mod != NULL && mod->s_write == ps_write_pronghorn;
}

PS_WRITE_FUNC(pronghorn)
{
	opened *of = PS_GET_MOD_DATA();
	if (of != NULL && of->segment == NULL) {
		return asked_write(&of->asked, key, val, maxlifetime, is_last_write()) ? SUCCESS : FAILURE;
	}
	return keep(of, key, val, maxlifetime, NULL) ? SUCCESS : FAILURE;
}

/* A part of its time is over, or it is gone. */
static bool is_aged(void *context, const cache_head *head, const void *value, cache_entry *entry)
{
	const uint64_t lifetime = (uint64_t) *(const zend_long *) context * 1000;
	(void) value;
	return head == NULL || head->ends == 0 || head->ends + lifetime / PARTS < entry->ends;
}

PS_UPDATE_TIMESTAMP_FUNC(pronghorn)
{
	opened *of = PS_GET_MOD_DATA();
	if (of != NULL && of->segment == NULL) {
		return of->asked.is_young || asked_write(&of->asked, key, val, maxlifetime, is_last_write()) ? SUCCESS : FAILURE;
	}
	return keep(of, key, val, maxlifetime, is_aged) ? SUCCESS : FAILURE;
}

PS_DESTROY_FUNC(pronghorn)
{
	const opened *of = PS_GET_MOD_DATA();
	session_key data;
	if (of == NULL || !key_of(&data, DATA_PREFIX, key)) {
		return FAILURE;
	}
	if (of->segment == NULL) {
		return asked_destroy(&of->asked, key) ? SUCCESS : FAILURE;
	}
	cache_delete(of->segment, data.bytes, data.length);
	return SUCCESS;
}

/* Entries end by themselves. */
PS_GC_FUNC(pronghorn)
{
	(void) mod_data, (void) maxlifetime;
	*nrdels = 0;
	return 0;
}

static bool is_there(const opened *of, const zend_string *id)
{
	session_key key;
	cache_head head;
	zend_string *value = NULL;
	if (of != NULL && of->segment == NULL) {
		return key_of(&key, DATA_PREFIX, id) && asked_has(&of->asked, id);
	}
	const bool found = of != NULL && key_of(&key, DATA_PREFIX, id) && cache_fetch(of->segment, key.bytes, key.length, &head, &value);
	if (found) {
		zend_string_release(value);
	}
	return found;
}

PS_CREATE_SID_FUNC(pronghorn)
{
	zend_string *id = create_id(mod_data);
	for (int tries = 0; id != NULL && tries < 3 && is_there(PS_GET_MOD_DATA(), id); tries++) {
		zend_string_release(id);
		id = create_id(mod_data);
	}
	return id;
}

PS_VALIDATE_SID_FUNC(pronghorn)
{
	return is_there(PS_GET_MOD_DATA(), key) ? SUCCESS : FAILURE;
}

static const ps_module save_handler = {PS_MOD_UPDATE_TIMESTAMP(pronghorn)};

void sessions_startup(void)
{
	if (session_globals() == NULL) {
		return;
	}
	asked_startup();
	/* A session that is a module of its own can't be linked to. */
	__typeof__(php_session_register_module) *add;
	*(void **) &add = dlsym(RTLD_DEFAULT, "php_session_register_module");
	*(void **) &create_id = dlsym(RTLD_DEFAULT, "php_session_create_id");
	if (add != NULL && create_id != NULL) {
		add(&save_handler);
	}
}

#else

void sessions_startup(void)
{
}

#endif
