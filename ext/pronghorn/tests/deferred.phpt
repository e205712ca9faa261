--TEST--
What calls have deferred is done in the extension, and ends with the word that the worker is free
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Call;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Request;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$said = [];
$say = static function (string $what) use (&$said, $box): void {
    // What the server was told so far, and what is going on.
    foreach (Codec::messages($box->take()) as $message) {
        $said[] = $message->kind . ($message->flags & Native::BUSY ? ' busy' : '');
    }
    $said[] = $what;
};
class Work
{
    public static function plain(): void
    {
        $GLOBALS['say']('static');
    }
}
class Held
{
    public function __construct(private Closure $end)
    {
    }

    public function __destruct()
    {
        ($this->end)();
    }
}
/** A closure that is deferred by another: nothing else holds what it does. */
function holds(Closure $end): Closure
{
    return function () use ($end) {
        $held = new Held($end);
        Call::current()->defer(function () use ($held) {
        });
    };
}
$works = [
    '/one' => [fn () => $say('one')],
    '/in-order' => [
        function () use ($say) {
            $say('one');
            Call::current()->defer(fn () => $say('later'));
        },
        fn () => $say('two'),
        'Work::plain',
    ],
    '/throws' => [fn () => throw new LogicException('thrown'), fn () => $say('next'), fn () => throw new Error('again')],
    '/exits' => [fn () => $say('one'), fn () => exit(3), fn () => $say('next'), fn () => exit, fn () => $say('last')],
    '/echoes' => [
        function () {
            echo 'echoed';
        },
    ],
    '/knows' => [fn () => $say(Call::current()->request()->path . ' ' . get_debug_type(Exchange::$current->call()->timeLeft()))],
    '/holds' => [holds(fn () => throw new LogicException('freed')), holds(fn () => exit), fn () => Call::current()->defer(fn () => $say('last'))],
    '/late' => [fn () => throw new LogicException('thrown'), fn () => $say('never')],
    '/missing' => ['missing', fn () => $say('next')],
];
$output = new Output(STDERR, true);
$output->start();
$function = function (Request $request) use ($works, $say) {
    $say("$request->path:");
    foreach ($works[$request->path] ?? throw new LogicException('the last') as $work) {
        Exchange::$current->deferred[] = $work; // as Call::defer() does, which takes nothing that can't be called
    }

    return 'text';
};
$handlers = ['http' => HttpHandler::of($function, new Messages([]))];
$failed = static function (Exchange $exchange, Throwable $thrown) use ($say): void {
    $say("{$exchange->request->path} failed: " . get_debug_type($thrown) . ' ' . $thrown->getMessage());
    if ($exchange->request->path === '/late' && $thrown instanceof LogicException) {
        throw new Error('the deadline, while this is told');
    }
};
$number = 0;
foreach ([...array_keys($works), '/last'] as $path) {
    $box->put(Codec::frame(Codec::request(['call' => ++$number, 'uri' => "https://example.com$path"])));
}
do {
    [$exchange, $what, $value] = $ring->serve($handlers, $failed, $output);
    $say("given back: {$exchange->request->path} $what " . json_encode($exchange->deferred) . ' ' . json_encode($output->take()));
    $output->start();
    $last = $exchange->id === $number;
    unset($exchange, $value);
    Exchange::$current = null;
} while (!$last);
$output->stop();
fwrite(STDOUT, str_replace('; /', "\n/", implode('; ', $said)) . "\n");
?>
--EXPECT--
/one:; reply busy; one; free
/in-order:; reply busy; one; two; static; later; free
/throws:; reply busy
/throws failed: LogicException thrown; next
/throws failed: Error again; free
/exits:; reply busy; one; next; last; free
/echoes:; reply busy; free; given back: /echoes 0 [] "echoed"
/knows:; reply busy
/knows null; free
/holds:; reply busy
/holds failed: LogicException freed; last; free
/late:; reply busy
/late failed: LogicException thrown
/late failed: Error the deadline, while this is told; free
/missing:; reply busy
/missing failed: Error What was deferred can't be called: function "missing" not found or invalid function name; next; free
/last:; given back: /last 2 [] ""
