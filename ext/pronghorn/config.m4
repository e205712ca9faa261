PHP_ARG_ENABLE([pronghorn], [whether to enable pronghorn],
  [AS_HELP_STRING([--enable-pronghorn], [Enable the fast path to the Pronghorn server])], [yes])
PHP_ARG_ENABLE([pronghorn-werror], [whether warnings are errors],
  [AS_HELP_STRING([--enable-pronghorn-werror], [Pronghorn: make warnings errors])], [no], [no])

if test "$PHP_PRONGHORN" != "no"; then
  dnl php.h asks for the functions of GNU, but system headers before it have decided by then: not every PHP passes this here.
  PRONGHORN_CFLAGS="-D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -std=gnu11 -fvisibility=hidden -DZEND_ENABLE_STATIC_TSRMLS_CACHE=1"
  if test "$PHP_PRONGHORN_WERROR" != "no"; then
    PRONGHORN_CFLAGS="$PRONGHORN_CFLAGS -Werror"
  fi
  dnl The only one that may be missing, as it says.
  if test -f "$srcdir/visits.c"; then
    PRONGHORN_VISITS=visits.c
  fi
  PHP_NEW_EXTENSION([pronghorn], [pronghorn.c cache.c cache_segment.c sessions.c session_close.c asked.c remote.c channel.c chunks.c native.c ring.c exit.c leftovers.c deadline.c spent.c stack.c opcache.c properties.c statics.c classic.c classic_call.c classic_ini.c title.c zygote.c held.c booted.c leaks.c messages.c reply.c head.c printed.c requests.c reset.c $PRONGHORN_VISITS], [$ext_shared],, [$PRONGHORN_CFLAGS])
fi
