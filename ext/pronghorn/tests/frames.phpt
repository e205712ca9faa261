--TEST--
Whatever bytes lie in the box: a call, an exception of the package, or the end
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Exception;
use Pronghorn\Internal\RawExchange;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
mt_srand(4711);
$context = Codec::request(['headers' => [['accept', '*/*'], ['cookie', 'a=1']], 'attributes' => [['x', 'y'], ['z', '']]]);
$raw = Codec::raw(['left' => 5000]);
$taken = $refused = 0;
for ($round = 0; $round < 2000; $round++) {
    $broken = $round % 3 === 0 ? $raw : $context;
    for ($i = mt_rand(1, 4); $i > 0; $i--) {
        $broken[mt_rand(0, strlen($broken) - 1)] = chr([0, 1, 0x7F, 0xFF, mt_rand(0, 255)][mt_rand(0, 4)]);
    }
    $frame = Codec::frame($broken, 'body');
    if ($round % 4 === 0) {
        $frame[mt_rand(0, strlen($frame) - 1)] = chr(mt_rand(0, 255));
    }
    $box->reset();
    $box->put($frame);
    $box->hangUp();
    try {
        while (($exchange = $ring->next()) !== null) {
            $taken++;
            if ($exchange instanceof RawExchange) {
                strlen($exchange->payload) < 100 ?: print 'too long';
                continue;
            }
            $request = $exchange->request;
            [$request->headers, $request->attributes, $request->cookies, $request->path, $request->bodyFile() ?? $request->body()];
        }
    } catch (Exception) {
        $refused++;
    }
}
var_dump($taken > 100, $refused > 100);
?>
--EXPECT--
bool(true)
bool(true)
