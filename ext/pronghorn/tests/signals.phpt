--TEST--
Handlers of signals run while a worker waits, and may throw or exit
--EXTENSIONS--
pronghorn
pcntl
posix
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached(5000);
pcntl_async_signals(true);
pcntl_signal(SIGALRM, function () use ($box): void {
    echo "alarm\n";
    $box->put(Codec::frame(Codec::request(['call' => 3])));
});
pcntl_alarm(1);
echo $ring->next()->id, "\n";

pcntl_signal(SIGALRM, fn () => throw new LogicException('from a handler'));
pcntl_alarm(1);
try {
    $ring->next();
} catch (LogicException $thrown) {
    echo $thrown->getMessage(), "\n";
}
?>
--EXPECT--
alarm
3
from a handler
