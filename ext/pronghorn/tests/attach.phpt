--TEST--
Attaching: what is in the way is said, and nothing is attached
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Internal\{GrpcExchange, HttpExchange, RawExchange, Relay, Ring};
use Pronghorn\Request;
use Pronghorn\Tests\Support\Box;
use function Pronghorn\Internal\ring_attach;

$transport = (new ReflectionClass(Relay::class))->newInstanceWithoutConstructor();
$empty = new HttpExchange($transport, 0, null, Request::blank());
$raw = new RawExchange($transport, 0, null, 0, '');
$grpc = new GrpcExchange($transport, 0, null, 0, '', '', [], '', false);
$attach = fn (Box $box, object $empty, int $look = 0, ?object $bytes = null, ?object $call = null) =>
    ring_attach(...[...$box->descriptors, $box->pipe, $box->pipe, $look, $empty, $bytes ?? $raw, $call ?? $grpc]);

echo $attach(new Box(['VERSION' => 1]), $empty), "\n";
echo $attach(new Box(['MAGIC' => 1]), $empty), "\n";
echo $attach(new Box(['UP' => 4096]), $empty), "\n";
echo ring_attach(997, 998, 999, 0, 0, 0, $empty, $raw, $grpc), "\n";
foreach ([
    [new stdClass(), 0], [(object) ['request' => new stdClass()], 0], [$empty, 0, $empty], [$empty, 0, $raw, $raw],
    [$empty, 0, $raw, (object) ['grpcCall' => $raw]], [$empty, -1], [$empty, 60001],
] as $arguments) {
    try {
        $attach(new Box(), ...$arguments);
    } catch (ValueError $error) {
        echo $error->getMessage(), "\n";
    }
}
var_dump($attach(new Box(), $empty));
echo trim(file_get_contents('/proc/self/timerslack_ns')), " ns\n";
echo $attach(new Box(), $empty), "\n";
putenv('PRONGHORN_RING=1,2');
$announced = [];
var_dump(Ring::take('3,4', $announced));
echo json_encode($announced), getenv('PRONGHORN_RING') === false ? " and hidden\n" : "\n";
?>
--EXPECTF--
the server and this extension are of different releases
the server and this extension are of different releases
the server and this extension are of different releases
its memory can't be mapped
Pronghorn\Internal\ring_attach(): Argument #7 ($http) must have a request
Pronghorn\Internal\ring_attach(): Argument #7 ($http) must have a property $id, or its request, the raw or the gRPC one, or its call
Pronghorn\Internal\ring_attach(): Argument #7 ($http) must have a property $startedAt, or its request, the raw or the gRPC one, or its call
Pronghorn\Internal\ring_attach(): Argument #9 ($grpc) must have a call
Pronghorn\Internal\ring_attach(): Argument #7 ($http) must have a property $startedAt, or its request, the raw or the gRPC one, or its call
Pronghorn\Internal\ring_attach(): Argument #6 ($look_after) must be between 0 and 60000
Pronghorn\Internal\ring_attach(): Argument #6 ($look_after) must be between 0 and 60000
NULL
1 ns
it is in use already
NULL
{"ring":false,"why":"PRONGHORN_RING=1,2 names no three descriptors"} and hidden
