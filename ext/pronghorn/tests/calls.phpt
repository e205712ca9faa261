--TEST--
A call comes in, a reply goes out; long ones as well
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$box->put(Codec::frame(Codec::request([
    'call' => 5, 'uri' => 'https://example.com/a?b', 'left' => 1000,
    'headers' => [['accept', '*/*'], ['x-a', '1'], ['x-a', '2']], 'attributes' => [['user', 'me'], ['', '']],
]), 'body'));
$exchange = $ring->next();
$request = $exchange->request;
echo $exchange->id, ' ', $exchange->deadline > hrtime(true) ? 'in time' : 'late', ' ', $request->method, ' ', $request->uri, "\n";
echo $request->path, ' ', $request->queryString, ' ', $request->protocol, ' ', $request->remoteAddress, "\n";
echo json_encode($request->headers), json_encode($request->attributes), json_encode($request->body()), "\n";

$ring->reply(5, 404, ['X-A' => ['1', 2], '7' => true, 'X-N' => null, 'X-F' => 1.5], 'gone');
$ring->chunk(5, 'piece', more: true);
foreach (Codec::messages($box->take()) as $message) {
    echo $message->kind, ' ', $message->number, ' ', json_encode($message->headers), ' ', $message->body, "\n";
}

foreach ([1, 131_072, 261_000] as $length) {
    $body = random_bytes($length);
    $box->put(Codec::frame(Codec::request(['method' => 'POST']), $body));
    $same[] = $ring->next()->request->body() === $body;
}
// Round and round.
for ($i = 0; $i < 20; $i++) {
    // A megabyte needs no wait, and nobody takes anything here meanwhile.
    $ring->reply(1, 200, [], $body = random_bytes($i % 2 ? 100_000 : 1 << 20));
    $same[] = Codec::messages($box->take())[0]->body === $body;
}
echo json_encode(array_unique($same)), "\n";
try {
    $ring->reply(1, 200, ['X-Long' => str_repeat('x', 1_100_000)], '');
} catch (ValueError $error) {
    echo $error->getMessage(), "\n";
}
try {
    $ring->reply(1, 200, ['X-Object' => new stdClass()], '');
} catch (Error $error) {
    echo $error->getMessage(), "\n";
}
var_dump($box->take());
?>
--EXPECT--
5 in time GET https://example.com/a?b
/a b HTTP/1.1 127.0.0.1
{"host":["example.com"],"accept":["*\/*"],"x-a":["1","2"]}{"user":"me","":""}"body"
reply 404 [["X-A","1"],["X-A","2"],["7","1"],["X-N",""],["X-F","1.5"]] gone
chunk 0 [] piece
[true]
A message to the server is too long
Object of class stdClass could not be converted to string
string(0) ""
