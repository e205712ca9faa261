--TEST--
A server that is gone ends the wait; nonsense in its counts as well
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\ConnectionLost;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$box->put(Codec::frame(Codec::request(['call' => 3])));
$box->hangUp();
echo $ring->next()->id, "\n";
var_dump($ring->next());
$box->spoil();
try {
    $ring->reply(3, 200, [], 'x');
} catch (ConnectionLost $lost) {
    echo $lost->getMessage(), "\n";
}
?>
--EXPECT--
3
NULL
the server is gone
