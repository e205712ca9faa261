--TEST--
Frames that a server would not send end a process that runs scripts, or nothing
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/classic.inc';

use Pronghorn\Tests\Support\Codec;

$head = pack('CCvVPV', 0x02, 0, 0, 1, 0, 0xFFFFFFFF);
foreach ([
    'a context that is cut' => substr($head, 0, 19),
    'half a length' => "$head\x80\0\0",
    'a name that leaves it' => "$head\x05\x00name",
    'a value that leaves it' => "$head\x01\x05name",
    'lengths of 4 GiB' => "$head\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx",
    'another kind' => pack('CCvV', 0x7F, 0, 0, 1),
] as $what => $context) {
    $scripts = new Scripts();
    $scripts->announcement();
    $scripts->put($context);
    echo "$what: ", $scripts->end();
}
$scripts = new Scripts();
$scripts->announcement();
$scripts->box->put('no frame at all');
echo 'text: ', $scripts->end();

$scripts = new Scripts();
$scripts->announcement();
$scripts->put(pack('CCvV', 0x7F, 0x80, 0, 1));
$scripts->put(pack('CCvV', 0x10, 0, 0, 1));
echo $scripts->run(script('echo "fine";'));
$scripts->box->put(Codec::control('{"stop":true}'));
echo $scripts->end();

foreach (['none', '5,6', '5,6,7,8', '5,6,x'] as $ring) {
    $scripts = new Scripts(environment: ['PRONGHORN_RING' => $ring]);
    echo "$ring: ", json_encode($scripts->announcement()), $scripts->end();
}
$scripts = new Scripts(withRing: false);
echo 'no ring: ', json_encode($scripts->announcement()), $scripts->end();
?>
--EXPECTF--
a context that is cut: pronghorn: this worker ends: the server sent a call whose lengths leave its frame
1
half a length: pronghorn: this worker ends: the server sent a call whose lengths leave its frame
1
a name that leaves it: pronghorn: this worker ends: the server sent a call whose lengths leave its frame
1
a value that leaves it: pronghorn: this worker ends: the server sent a call whose lengths leave its frame
1
lengths of 4 GiB: pronghorn: this worker ends: the server sent a call whose lengths leave its frame
1
another kind: pronghorn: this worker ends: the server sent a message that this extension does not know: install the same release of both
1
text: pronghorn: this worker ends: the server sent what is no frame
1
reply 1 200 [["X-Powered-By","PHP/%d.%d.%s"],["Content-type","text/html; charset=UTF-8"]] fine
0
none: []this PHP can't serve scripts: the server offers no shared memory
1
5,6: []this PHP can't serve scripts: the server offers no shared memory
1
5,6,7,8: []this PHP can't serve scripts: the server offers no shared memory
1
5,6,x: []this PHP can't serve scripts: the server offers no shared memory
1
no ring: []this PHP can't serve scripts: the server offers no shared memory
1
