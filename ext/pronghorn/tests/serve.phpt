--TEST--
Calls are answered without a line of PHP between them, and given back where there is more to do
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Request;
use Pronghorn\Response;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$answers = [
    '/text' => fn () => 'text',
    '/none' => fn () => '',
    '/head' => fn () => new Response('made', 201, ['X-A' => ['1', 2], '7' => 'seven', 'X-Long' => str_repeat('x', 3)]),
    '/stringable' => fn () => new Response(new class {
        public function __toString(): string
        {
            return 'made late';
        }
    }),
    '/object-header' => fn () => new Response('x', 200, ['X-A' => new ArrayObject()]),
    '/array' => fn () => ['a' => 1],
    '/echo' => function () {
        echo 'echoed';

        return 'text';
    },
    '/buffer' => function () {
        ob_start();

        return 'text';
    },
    '/deferred' => function () {
        Exchange::$current->deferred[] = fn () => 1;

        return 'text';
    },
    '/deferred-array' => function () {
        Exchange::$current->deferred[] = fn () => 1;

        return ['a' => 1];
    },
    '/deferred-reference' => function () {
        $deferred = &Exchange::$current->deferred;
        $deferred[] = fn () => 1;
        $GLOBALS['kept'] = &$deferred;

        return 'text';
    },
    '/throw' => fn () => throw new LogicException('thrown'),
    '/exit' => function () {
        (fn () => exit(3))();
    },
    '/call' => function () {
        // It holds the exchange that holds it.
        Exchange::$current->call();

        return get_debug_type(Exchange::$current->handler) . ' ' . Exchange::$current->id;
    },
];
$output = new Output(STDERR, true);
$output->start();
$messages = new Messages([]);
$how = ['answered', 'returned', 'threw', 'exited'];
$number = 0;
foreach ($answers as $path => $answer) {
    $number++;
    $box->put(Codec::frame(Codec::request(['call' => $number, 'uri' => "https://example.com$path"])));
    // Given back, so that the wait ends.
    $box->put(Codec::frame(Codec::request(['call' => $number + 16, 'uri' => 'https://example.com/throw'])));
    // What it changes is its own.
    $function = function (Request &$request) use ($answers) {
        [$path, $request] = [$request->path, null];

        return $answers[$path]();
    };
    $ended = [];
    do {
        [$exchange, $what, $value] = $ring->serve(['http' => HttpHandler::of($function, $messages)], fn () => print 'failed', $output);
        $ended[] = "$how[$what] " . (is_object($value) ? get_debug_type($value) : json_encode($value));
        $output->take();
        $output->start();
        $last = $exchange->id === $number + 16;
        $same = Exchange::$current === $exchange;
        unset($exchange, $value);
        Exchange::$current = null;
    } while (!$last);
    $ended[count($ended) - 1] = '';
    foreach (Codec::messages($box->take()) as $message) {
        $ended[] = "$message->kind $message->number " . json_encode($message->headers) . " $message->body";
    }
    $line = "$path: " . implode('; ', array_filter($ended)) . ($same ? '' : ' of another call');
    fwrite(STDOUT, str_replace(trim(json_encode(__DIR__), '"') . '\\/', '', $line) . "\n");
}
$output->stop();
try {
    Pronghorn\Internal\ring_serve(fn () => 1, null, null, fn () => 1, $output, new stdClass());
} catch (Error $error) {
    fwrite(STDOUT, $error->getMessage() . "\n");
}
?>
--EXPECT--
/text: reply 200 [] text
/none: reply 200 [] 
/head: reply 201 [["X-A","1"],["X-A","2"],["7","seven"],["X-Long","xxx"]] made
/stringable: returned Pronghorn\Response
/object-header: returned Pronghorn\Response
/array: returned {"a":1}
/echo: returned "text"
/buffer: returned "text"
/deferred: reply 200 [] text; free 0 [] 
/deferred-array: returned {"a":1}
/deferred-reference: returned "text"
/throw: threw LogicException
/exit: exited ["serve.php",54]
/call: reply 200 [] Pronghorn\Internal\HttpHandler 14
The classes of the package have no property $body
