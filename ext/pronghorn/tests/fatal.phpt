--TEST--
A fatal error is no exit: it ends the process
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php
if (!extension_loaded('ffi')) die('skip needs FFI');
if (getenv('USE_ZEND_ALLOC') === '0') die('skip there is no memory limit');
?>
--INI--
memory_limit=32M
--FILE--
<?php
require __DIR__ . '/common.inc';

[$box, $ring] = attached();
Pronghorn\Internal\until_exit(fn () => exit);
Pronghorn\Internal\until_exit(function (): void {
    $hoard = [];
    while (true) {
        $hoard[] = str_repeat('x', 100_000);
    }
});
echo 'never';
?>
--EXPECTF--
Fatal error: Allowed memory size of %d bytes exhausted %s
