--TEST--
A worker that was told to looks for its next call before it sleeps, for a millisecond at most
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--ENV--
PRONGHORN_SPIN=2000000000
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$box->put(Codec::frame(Codec::request(['call' => 5])));
echo $ring->next()->id, "\n";
$box->hangUp();
$start = hrtime(true);
var_dump($ring->next());
$took = (hrtime(true) - $start) / 1e6;
echo $took >= 1 && $took < 1000 ? 'in time' : "after $took ms", "\n";
?>
--EXPECT--
5
NULL
in time
