/* The headers that a script has set, as the head of its call's reply. */
#ifndef PRONGHORN_HEAD_H
#define PRONGHORN_HEAD_H

#include "php.h"
#include "SAPI.h"

#define HEAD_TYPE "Content-Type"

/* A field's name and value. False: it has no colon. */
bool head_split(const sapi_header_struct *field, size_t *name_length, const char **value, size_t *length);

/* In place of a status that is negative, or larger than any. */
#define HEAD_NO_STATUS UINT16_MAX

/* A status as it is sent; the server says which ones can be. */
unsigned head_status(zend_long status);

/* What PHP calls when it sends headers. An empty type says that it has none. */
int head_send(sapi_headers_struct *headers);

#endif
