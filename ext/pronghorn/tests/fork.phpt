--TEST--
A forked child has no box, and neither reads nor writes for its parent
--EXTENSIONS--
pronghorn
pcntl
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$box->put(Codec::frame(Codec::request(['call' => 9])));
if (pcntl_fork() === 0) {
    foreach ([fn () => $ring->next(), fn () => $ring->reply(9, 200, [], 'not mine'), fn () => $ring->cancelled(9)] as $try) {
        try {
            $try();
        } catch (Error $error) {
            echo $error->getMessage(), "\n";
        }
    }
    // Ends here, and not where its parent would go on.
    Pronghorn\Internal\until_exit(fn () => exit(3));
    exit(4);
}
pcntl_wait($status);
echo pcntl_wexitstatus($status), "\n";
echo $ring->next()->id, json_encode($box->take()), "\n";
?>
--EXPECT--
This process is no worker of Pronghorn with shared memory, or was forked from one
This process is no worker of Pronghorn with shared memory, or was forked from one
This process is no worker of Pronghorn with shared memory, or was forked from one
3
9""
