--TEST--
Outside of a worker every function that needs one says so
--EXTENSIONS--
pronghorn
--FILE--
<?php
namespace Pronghorn\Internal;

foreach ([
    fn () => ring_next(),
    fn () => ring_peek(),
    fn () => ring_reply(1, 200, [], '', 0, false),
    fn () => ring_message(1, 1, 0, 0, '', '', false),
    fn () => ring_write(''),
    fn () => zygote_serve(3, false),
] as $function) {
    try {
        $function();
    } catch (\Error $error) {
        echo $error::class, ': ', $error->getMessage(), "\n";
    }
}
?>
--EXPECT--
Error: This process is no worker of Pronghorn with shared memory, or was forked from one
Error: This process is no worker of Pronghorn with shared memory, or was forked from one
Error: This process is no worker of Pronghorn with shared memory, or was forked from one
Error: This process is no worker of Pronghorn with shared memory, or was forked from one
Error: This process is no worker of Pronghorn with shared memory, or was forked from one
Error: This process was not started as a zygote of Pronghorn, or has been one
