#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "head.h"

#include "reply.h"

static bool is_called(const char *field, size_t length, const char *name)
{
	return length == strlen(name) && strncasecmp(field, name, length) == 0;
}

bool head_split(const sapi_header_struct *field, size_t *name_length, const char **value, size_t *length)
{
	const char *end = field->header + field->header_len, *colon = memchr(field->header, ':', field->header_len);
	if (colon == NULL) {
		return false;
	}
	*name_length = (size_t) (colon - field->header);
	for (*value = colon + 1; *value < end && (**value == ' ' || **value == '\t'); (*value)++) {
	}
	*length = (size_t) (end - *value);
	return true;
}

unsigned head_status(zend_long status)
{
	return status < 0 || status > HEAD_NO_STATUS ? HEAD_NO_STATUS : (unsigned) status;
}

/* To a server in front of PHP the field `Status` is none but the status; a second one changes
 * nothing. */
static unsigned find_status(sapi_headers_struct *headers)
{
	zend_llist_position at;
	for (sapi_header_struct *field = zend_llist_get_first_ex(&headers->headers, &at); field != NULL;
		field = zend_llist_get_next_ex(&headers->headers, &at)) {
		size_t name_length, length;
		const char *value;
		if (head_split(field, &name_length, &value, &length) && is_called(field->header, name_length, "Status")) {
			return head_status(strtol(value, NULL, 10));
		}
	}
	return head_status(headers->http_response_code);
}

int head_send(sapi_headers_struct *headers)
{
	if (reply_has_head()) {
		return SAPI_HEADER_SENT_SUCCESSFULLY; /* a callback for headers has printed, and PHP sent them for that */
	}
	unsigned status = find_status(headers);
	/* There is no content, and a cache would take the type over into what it has (RFC 9111, section
	 * 4.3.4). */
	bool had_type = status == 204 || status == 304, had_date = false;
	zend_llist_position at;
	for (sapi_header_struct *field = zend_llist_get_first_ex(&headers->headers, &at); field != NULL;
		field = zend_llist_get_next_ex(&headers->headers, &at)) {
		size_t name_length, length;
		const char *value;
		if (!head_split(field, &name_length, &value, &length) || is_called(field->header, name_length, "Status")) {
			continue;
		}
		bool *had = is_called(field->header, name_length, HEAD_TYPE) ? &had_type
			: is_called(field->header, name_length, "Date") ? &had_date : NULL;
		if (had != NULL) {
			/* Of these there is one, and an empty one is none. */
			if (*had || length == 0) {
				continue;
			}
			*had = true;
		}
		reply_add_field(field->header, name_length, value, length);
	}
	if (!had_type) {
		reply_add_field(ZEND_STRL(HEAD_TYPE), "", 0);
	}
	reply_set_status(status == 0 ? 200 : status);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}
