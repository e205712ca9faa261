PHP_ARG_ENABLE([pronghorn], [whether to enable pronghorn], [AS_HELP_STRING([--enable-pronghorn], [Enable the fast path to the Pronghorn server])], [yes])

if test "$PHP_PRONGHORN" != "no"; then
  PHP_NEW_EXTENSION([pronghorn], [pronghorn.c ring.c], [$ext_shared],, [-Wall -Wextra -Wno-unused-parameter -std=gnu11 -fvisibility=hidden -DZEND_ENABLE_STATIC_TSRMLS_CACHE=1])
fi
