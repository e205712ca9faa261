--TEST--
$_SERVER where no code names it before the first call, and what filter_input() has of it
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--ENV--
FROM_BOOT=boot
HTTP_X_B=environment
--INI--
auto_globals_jit=1
--FILE--
<?php
require __DIR__ . '/requests.inc';

$worker = new RequestWorker();
$show = fn (callable $handler, array $request = []) => fwrite(STDOUT, $worker->reply($handler, $request) . "\n");

// Compiled in the first call.
$seen = <<<'CODE'
    return json_encode(array_intersect_key($_SERVER, array_flip(
        ['FROM_BOOT', 'FROM_CALL', 'HTTP_X_A', 'HTTP_X_B', 'REQUEST_METHOD', 'mine']
    )));
CODE;
$filtered = fn (): string => json_encode([
    filter_has_var(INPUT_SERVER, 'HTTP_X_A'),
    filter_input(INPUT_SERVER, 'HTTP_X_A', FILTER_VALIDATE_INT),
    filter_input(INPUT_SERVER, 'REQUEST_METHOD'),
    filter_input_array(INPUT_SERVER, ['HTTP_X_A' => FILTER_DEFAULT]),
]);
$twice = ['headers' => [['x-a', '1'], ['x-a', '2']]];
$once = ['headers' => [['x-a', '7']], 'method' => 'PUT'];

$show(function () use ($seen) { putenv('FROM_CALL=1'); echo eval($seen); }, $twice);
$show(function () use ($seen) { echo eval($seen); eval('$_SERVER["mine"] = 1;'); putenv('FROM_BOOT=call'); });
$show(function () use ($seen) { echo eval($seen); }, $once);
$show(function () use ($filtered, $seen) { echo $filtered(), eval($seen); }, $twice);
$show(function () use ($filtered) { echo $filtered(); });
?>
--EXPECT--
reply 200 [Content-type: text/html; charset=UTF-8] {"FROM_BOOT":"boot","FROM_CALL":"1","REQUEST_METHOD":"GET","HTTP_X_A":"1, 2"}
reply 200 [Content-type: text/html; charset=UTF-8] {"FROM_BOOT":"boot","REQUEST_METHOD":"GET"}
reply 200 [Content-type: text/html; charset=UTF-8] {"FROM_BOOT":"boot","REQUEST_METHOD":"PUT","HTTP_X_A":"7"}
reply 200 [Content-type: text/html; charset=UTF-8] [true,false,"GET",{"HTTP_X_A":"1, 2"}]{"FROM_BOOT":"boot","REQUEST_METHOD":"GET","HTTP_X_A":"1, 2"}
reply 200 [Content-type: text/html; charset=UTF-8] [false,null,"GET",{"HTTP_X_A":null}]
