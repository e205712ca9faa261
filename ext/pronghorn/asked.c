/* Sessions in the server's store or in Redis: each step is a call of the server. Which process has a
 * session open is known there, by its number and by when it was started. */
#include "asked.h"

#include <strings.h>

#include "ext/standard/base64.h"
#include "zend_exceptions.h"

#include "remote.h"

/* What the server hands over: a name in each line. */
#define OFFER "PRONGHORN_SESSIONS"
/* Seconds for a step, beyond the wait for a lock: the server waits for its store or for Redis. */
#define STEP 20.0
/* Where PHP waits for ever. */
#define A_DAY (24 * 3600.0)

static char *names; /* each ends with a NUL, the last one with two */

void asked_startup(void)
{
	remote_startup();
	const char *offer = getenv(OFFER);
	if (offer == NULL || *offer == '\0') {
		return;
	}
	const size_t length = strlen(offer);
	names = pemalloc(length + 2, true);
	memcpy(names, offer, length + 1);
	names[length + 1] = '\0';
	for (size_t i = 0; i < length; i++) {
		names[i] = names[i] == '\n' ? '\0' : names[i];
	}
}

static const char *next(const char *name)
{
	return name + strlen(name) + 1;
}

const char *asked_find(const char *name)
{
	if (names == NULL) {
		return NULL;
	}
	if (name == NULL) {
		return *next(names) == '\0' ? names : NULL;
	}
	for (const char *one = names; *one != '\0'; one = next(one)) {
		if (strcasecmp(one, name) == 0) {
			return one;
		}
	}
	return NULL;
}

static smart_str begin(const asked *of, const zend_string *id)
{
	smart_str argument = {0};
	smart_str_appendc(&argument, '{');
	remote_add_text(&argument, "storage", of->storage, strlen(of->storage));
	remote_add_text(&argument, "id", ZSTR_VAL(id), ZSTR_LEN(id));
	return argument;
}

/* Calls, and warns where that fails. */
static bool call(const char *method, smart_str *argument, double seconds, zval *answer)
{
	char *wrong;
	smart_str_appendc(argument, '}');
	smart_str_0(argument);
	const bool done = remote_call(method, argument, seconds, answer, &wrong);
	smart_str_free(argument);
	if (!done && wrong != NULL) {
		if (EG(exception) == NULL) {
			php_error_docref(NULL, E_WARNING, "The session can't be had of the server: %s", wrong);
		}
		efree(wrong);
	}
	return done;
}

static const zval *field(const zval *answer, const char *name)
{
	return zend_hash_str_find(Z_ARRVAL_P(answer), name, strlen(name));
}

static double number_of(const zval *answer, const char *name)
{
	const zval *found = field(answer, name);
	return found == NULL ? 0 : Z_TYPE_P(found) == IS_LONG ? (double) Z_LVAL_P(found) : Z_TYPE_P(found) == IS_DOUBLE ? Z_DVAL_P(found) : 0;
}

static void tell_locked(const zval *holder, uint64_t wait)
{
	const zval *doing = Z_TYPE_P(holder) == IS_ARRAY ? field(holder, "doing") : NULL;
	if (doing == NULL || Z_TYPE_P(doing) != IS_STRING) {
		php_error_docref(NULL, E_WARNING, "The session is locked");
		return;
	}
	php_error_docref(NULL, E_WARNING, "The session is locked by process %.0f (%s) for %.1f s: waited %.1f s, which is pronghorn.session_lock_timeout",
		number_of(holder, "process"), Z_STRVAL_P(doing), number_of(holder, "seconds"), (double) wait / 1000);
}

static uint64_t seconds_of(zend_long lifetime)
{
	return (uint64_t) (lifetime < 1 ? 1 : lifetime);
}

bool asked_open(asked *of, const zend_string *id, bool is_read_only, const asker *who, uint64_t wait, zend_long lifetime, zend_string **value)
{
	zval answer;
	smart_str argument = begin(of, id);
	remote_add_number(&argument, "process", who->process);
	remote_add_number(&argument, "started", who->started);
	remote_add_text(&argument, "doing", who->doing, strlen(who->doing));
	remote_add_number(&argument, "wait", wait);
	remote_add_number(&argument, "ttl", seconds_of(lifetime));
	if (is_read_only) {
		smart_str_appends(&argument, ",\"read_only\":true");
	}
	of->token = 0;
	of->is_young = of->is_there = false;
	if (!call("session.Open", &argument, STEP + (wait == 0 ? A_DAY : (double) wait / 1000), &answer)) {
		return false;
	}
	const zval *holder = field(&answer, "holder"), *data = field(&answer, "data");
	const zval *token = field(&answer, "token"), *young = field(&answer, "young"), *found = field(&answer, "found");
	if (holder != NULL) {
		tell_locked(holder, wait);
		zval_ptr_dtor(&answer);
		return false;
	}
	of->token = token != NULL && Z_TYPE_P(token) == IS_LONG ? (uint64_t) Z_LVAL_P(token) : 0;
	of->is_young = young != NULL && Z_TYPE_P(young) == IS_TRUE;
	of->is_there = found != NULL && Z_TYPE_P(found) == IS_TRUE;
	*value = data != NULL && Z_TYPE_P(data) == IS_STRING
		? php_base64_decode((const unsigned char *) Z_STRVAL_P(data), Z_STRLEN_P(data)) : NULL;
	if (*value == NULL) {
		*value = ZSTR_EMPTY_ALLOC();
	}
	zval_ptr_dtor(&answer);
	return true;
}

bool asked_write(asked *of, const zend_string *id, const zend_string *value, zend_long lifetime, bool is_last)
{
	zval answer;
	smart_str argument = begin(of, id);
	remote_add_number(&argument, "token", of->token);
	remote_add_number(&argument, "ttl", seconds_of(lifetime));
	remote_add_bytes(&argument, "data", ZSTR_VAL(value), ZSTR_LEN(value));
	if (is_last) {
		smart_str_appends(&argument, ",\"is_last\":true");
	}
	if (!call("session.Write", &argument, STEP, &answer)) {
		return false;
	}
	of->token = is_last ? 0 : of->token;
	zval_ptr_dtor(&answer);
	return true;
}

bool asked_destroy(const asked *of, const zend_string *id)
{
	zval answer;
	smart_str argument = begin(of, id);
	if (!call("session.Destroy", &argument, STEP, &answer)) {
		return false;
	}
	zval_ptr_dtor(&answer);
	return true;
}

bool asked_has(const asked *of, const zend_string *id)
{
	zval answer;
	smart_str argument = begin(of, id);
	if (!call("session.Has", &argument, STEP, &answer)) {
		return false;
	}
	const zval *found = field(&answer, "found");
	const bool is_there = found != NULL && Z_TYPE_P(found) == IS_TRUE;
	zval_ptr_dtor(&answer);
	return is_there;
}

void asked_close(asked *of, const zend_string *id)
{
	zval answer;
	if (of->token == 0) {
		return;
	}
	smart_str argument = begin(of, id);
	remote_add_number(&argument, "token", of->token);
	of->token = 0;
	if (call("session.Close", &argument, STEP, &answer)) {
		zval_ptr_dtor(&answer);
	}
}
