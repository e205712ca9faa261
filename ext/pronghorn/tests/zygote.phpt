--TEST--
Processes that run scripts are forked from one that has started PHP, and end apart
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/classic.inc';

$zygote = new Zygote(['precision' => 3, 'expose_php' => 0]);
echo $zygote->said(), "\n";
$script = script('$title = str_contains(file_get_contents("/proc/self/maps"), "vgpreload") ? "none under valgrind" : rtrim(file_get_contents("/proc/self/cmdline"), "\0");
echo json_encode([PHP_SAPI, ini_get("precision"), getenv("PRONGHORN_ZYGOTE"), file_get_contents("/proc/self/comm"), $title]);
    define("ONCE", ini_set("precision", "5"));');
$random = script('echo mt_rand(), lcg_value();');
[$one, $other] = [new Scripts(of: $zygote), new Scripts(of: $zygote)];
$said = [$one->announcement(), $other->announcement()];
echo json_encode([$said[0]['ring'], $said[1]['ring'], $said[0]['pid'] !== $said[1]['pid']]), "\n";
foreach ([$one, $one, $other] as $number => $scripts) {
    echo $scripts->run($script, number: $number + 1);
}
$zygote->order('stuck?', []);
echo $zygote->said(), "\n";
var_dump($one->run($random, number: 9) === $other->run($random, number: 9));
echo 'one: ', $one->end(), "\n";
echo $other->run($script, number: 4);
$third = new Scripts(of: $zygote);
$third->announcement();
echo 'zygote: ', $zygote->end();
echo $third->run($script, number: 5);
echo 'other: ', $other->end(), "\nthird: ", $third->end(), "\n";

// The worker of a server that is none: it is a child of this process all the same.
$zygote = new Zygote();
$zygote->said();
$pipes = (function () {
    [$stderr, $down] = [$this->pipe(), $this->pipe()];
    $this->order('fork 1 1', [$stderr[1], $stderr[1], $down[0], $stderr[1], ...(new Pronghorn\Tests\Support\Box())->descriptors]);
    echo preg_replace('/\d+/', 'N', $this->said()), "\n";
    $this->c->close($stderr[1]);
    $this->c->close($down[0]);

    return [$this->stream($stderr[0], 'r'), $this->stream($down[1], 'w')];
})->call($zygote);
fwrite($pipes[1], Pronghorn\Tests\Support\Codec::control('{"pid":1,"native":1}'));
echo stream_get_contents($pipes[0]);

foreach ([['spoon 1', [1, 1, 1, 1, 1, 1, 1]], ['fork 1 1', []], ['fork 1 1', [1, 1]], ['fork 0 1', [1, 1, 1, 1, 1, 1, 1]], ['fork 1 1x', [1, 1, 1, 1, 1, 1, 1]]] as $wrong) {
    $zygote = new Zygote();
    $zygote->said();
    $zygote->order(...$wrong);
    echo $zygote->said(), $zygote->end();
}
?>
--EXPECTF--
zygote 1 threads 1 jit 0 warm 0 %w
[true,true,true]
reply 1 200 [["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","3",false,"php\n","%r(pronghorn: pool shop worker 3, classic|none under valgrind)%r"]
reply 2 200 [["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","3",false,"php\n","%r(pronghorn: pool shop worker 3, classic|none under valgrind)%r"]
reply 3 200 [["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","3",false,"php\n","%r(pronghorn: pool shop worker 3, classic|none under valgrind)%r"]
free
bool(false)
one: 
reply 4 200 [["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","3",false,"php\n","%r(pronghorn: pool shop worker 3, classic|none under valgrind)%r"]
zygote: 0
reply 5 200 [["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","3",false,"php\n","%r(pronghorn: pool shop worker 3, classic|none under valgrind)%r"]
other: 
third: 
forked N
this PHP can't serve scripts: the server that it was forked for is not its parent
pronghorn: this zygote ends: the server sent an order that this extension does not know: install the same release of both
1
pronghorn: this zygote ends: the server sent an order that this extension does not know: install the same release of both
1
pronghorn: this zygote ends: the server sent an order that this extension does not know: install the same release of both
1
pronghorn: this zygote ends: the server sent an order that this extension does not know: install the same release of both
1
pronghorn: this zygote ends: the server sent an order that this extension does not know: install the same release of both
1