<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Process;

/** Over pipes, and the start of a worker, which is the same over all. */
final class ProcessTest extends ProcessTestCase
{
    protected function start(): Process
    {
        return Process::started(self::WORKER);
    }

    public function testAWorkerEndsQuietlyWhenTheServerIsGoneBeforeItSaidAnything(): void
    {
        $worker = new Process(self::WORKER);
        $worker->hangUp();

        self::assertSame(0, $worker->wait());
        self::assertSame("stopped\nafter run\n", $worker->output());
    }

    /**
     * @dataProvider exits
     * @param list<array{string, int, int, string}> $expected kind, status, flags, body of each message
     */
    public function testExitEndsTheReply(string $path, array $expected, int $code = 0, string $log = ''): void
    {
        $worker = $this->start();
        $worker->request(['uri' => "http://h$path"]);
        $reply = $worker->reply();

        self::assertSame($expected, array_map(static fn ($m) => [$m->kind, $m->number, $m->flags, $m->body], $reply));
        self::assertSame($code, $worker->wait());
        self::assertSame($log, $worker->output());
    }

    /** @return iterable<string, array<mixed>> */
    public static function exits(): iterable
    {
        $leaving = Native::LEAVING;
        yield 'what was echoed' => ['/echo-exit', [['reply', 200, $leaving, 'echoed']]];
        yield 'what was echoed into other buffers' => ['/buffered-exit', [['reply', 200, $leaving, 'echoed deeper']]];
        yield 'what was returned' => ['/returned-exit', [['reply', 418, $leaving, 'and echoed']]];
        yield 'what was streamed' => ['/stream-exit', [['reply', 200, 0, 'a'], ['chunk', 0, $leaving, '']]];
        yield 'nothing' => ['/silent-exit', [['error', 0, $leaving, '']], 3];
        yield 'an echo that comes later' => ['/shutdown-echo-exit', [['error', 0, $leaving, '']]];
        yield 'deferred work' => ['/defer-exit', [['reply', 200, Native::BUSY, 'before']], 4];
    }

    public function testASilentExitNamesTheHandler(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/silent-exit']);
        $error = $worker->reply()[0]->error;

        self::assertSame('exit', $error['class']);
        self::assertSame(self::WORKER, realpath($error['file']));
        self::assertStringContainsString('->onRequest(', file(self::WORKER)[$error['line'] - 1]);
    }

    public function testRunByHandAWorkerSaysWhatItIs(): void
    {
        $pipes = [1 => ['pipe', 'w'], 2 => ['pipe', 'w']];
        $process = proc_open([PHP_BINARY, 'fixtures/worker.php'], $pipes, $pipes, __DIR__, []);
        $output = stream_get_contents($pipes[1]);
        $error = stream_get_contents($pipes[2]);

        self::assertSame(1, proc_close($process));
        self::assertSame('', $output);
        self::assertStringContainsString("\n    pronghorn serve fixtures/worker.php\n", $error);
    }

    /**
     * @dataProvider boots
     * @param array<string, string> $environment
     */
    public function testABadScriptEndsTheBoot(string $code, array $environment, string $message): void
    {
        $script = (string) tempnam(sys_get_temp_dir(), 'pronghorn');
        file_put_contents($script, '<?php require ' . var_export(__DIR__ . '/../autoload.php', true) . '; ' . $code);
        try {
            $worker = new Process($script, [], $environment);
            $worker->send(Codec::control('{"pid":1,"native":1}'));
            self::assertNull($worker->read(), 'before the handshake');
            self::assertSame(1, $worker->wait());
            self::assertStringStartsWith('pronghorn: ', $worker->output());
            self::assertStringContainsString($message, $worker->output());
        } finally {
            unlink($script);
        }
    }

    /** @return iterable<string, array{string, array<string, string>, string}> */
    public static function boots(): iterable
    {
        yield 'no parameter' => ['Pronghorn\serve(fn () => "x");', [], 'its output would be the reply'];
        yield 'no type' => ['Pronghorn\serve(fn ($r) => "x");', [], 'a parameter without a type'];
        yield 'no request' => ['Pronghorn\serve(fn (int $r) => "x");', [], '`int`'];
        yield 'no handler' => ['(new Pronghorn\Worker())->run();', [], 'no handler for it. Give one to onRequest()'];
        yield 'no such kind' => [
            'Pronghorn\serve(fn (Pronghorn\Request $r) => "x");',
            ['RR_MODE' => 'jobs'],
            'This pool runs `jobs` (RR_MODE), and the script has no handler for it. Give one to onJob()',
        ];
        yield 'no handler of bytes' => [
            'Pronghorn\serve(fn (Pronghorn\Request $r) => "x");',
            ['RR_MODE' => 'echo'],
            'This pool runs `echo` (RR_MODE), and the script has no handler for it. Give one to onRaw()',
        ];
        yield 'a handler of bytes that takes none' => [
            '(new Pronghorn\Worker())->onRaw(fn (int $r) => "x")->run();',
            ['RR_MODE' => 'echo'],
            'does not take one string',
        ];
        yield 'a handler of jobs that takes none' => [
            '(new Pronghorn\Worker())->onJob(fn (string $payload) => "x")->run();',
            ['RR_MODE' => 'jobs'],
            'does not take one job',
        ];
        yield 'a handler of jobs that would not run' => [
            '(new Pronghorn\Worker())->onJob(function (Pronghorn\Job $job) { yield 1; })->run();',
            ['RR_MODE' => 'jobs'],
            'has a `yield`, so nothing of it would run',
        ];
        yield 'a handler of connections that takes none' => [
            '(new Pronghorn\Worker())->onTcp(fn (string $message) => "x")->run();',
            ['RR_MODE' => 'tcp'],
            'does not take one connection',
        ];
        yield 'a handler of connections that would not run' => [
            '(new Pronghorn\Worker())->onTcp(function (Pronghorn\TcpConnection $it) { yield 1; })->run();',
            ['RR_MODE' => 'tcp'],
            'has a `yield`, so nothing of it would run',
        ];
        yield 'no handler of connections' => [
            'Pronghorn\serve(fn (Pronghorn\Request $r) => "x");',
            ['RR_MODE' => 'tcp'],
            'Give one to onTcp()',
        ];
        yield 'no PSR-7 library' => [
            'Pronghorn\serve(fn (Psr\Http\Message\ServerRequestInterface $r) => "x");',
            [],
            'composer require nyholm/psr7',
        ];
        $good = 'Pronghorn\serve(fn (Pronghorn\Request $r) => "x");';
        // Far above what PHPUnit itself may have open.
        yield 'no pipes' => [$good, ['PRONGHORN_PIPES' => '998,999'], 'PRONGHORN_PIPES=998,999'];
        yield 'no numbers' => [$good, ['PRONGHORN_PIPES' => '3'], 'PRONGHORN_PIPES=3'];
        yield 'no pipe but a file' => [$good, ['PRONGHORN_PIPES' => '3,1'], 'PRONGHORN_PIPES=3,1'];
    }
}
