<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Box;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Process;

/** Over shared memory. */
final class RingProcessTest extends ProcessTestCase
{
    protected function start(): Process
    {
        Box::expectPossible();

        return Process::started(self::WORKER, box: new Box());
    }

    /**
     * @dataProvider exits
     * @param list<array{string, int, int, string}> $expected kind, status, flags, body of each message
     */
    public function testExitEndsTheCallAndNotTheWorker(string $path, array $expected): void
    {
        $worker = $this->start();
        $reply = [];
        $worker->request(['uri' => "http://h$path"]);
        while (count($reply) < count($expected)) {
            $reply[] = $worker->read();
        }
        self::assertSame($expected, array_map(static fn ($m) => [$m->kind, $m->number, $m->flags, $m->body], $reply));
        $worker->request(['uri' => 'http://h/pid']);
        self::assertSame((string) $worker->pid(), $worker->reply()[0]->body);
        $worker->send(Codec::control('{"stop":true}'));
        self::assertSame(0, $worker->wait(), 'whatever the code given to exit was');
    }

    /** @return iterable<string, array<mixed>> */
    public static function exits(): iterable
    {
        yield 'what was echoed' => ['/echo-exit', [['reply', 200, 0, 'echoed']]];
        yield 'what was echoed into other buffers' => ['/buffered-exit', [['reply', 200, 0, 'echoed deeper']]];
        yield 'what was returned' => ['/returned-exit', [['reply', 418, 0, 'and echoed']]];
        yield 'what was streamed' => ['/stream-exit', [['reply', 200, 0, 'a'], ['chunk', 0, 0, '']]];
        yield 'nothing' => ['/silent-exit', [['error', 0, 0, '']]];
        yield 'deferred work' => ['/defer-exit', [['reply', 200, Native::BUSY, 'before'], ['free', 0, 0, '']]];
        yield 'nothing, with deferred work' => ['/exit-defer', [['error', 0, Native::BUSY, ''], ['free', 0, 0, '']]];
    }

    public function testASilentExitNamesItsLine(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/silent-exit']);
        $error = $worker->reply()[0]->error;

        self::assertSame(self::WORKER, realpath($error['file']));
        self::assertStringContainsString('exit(3)', file(self::WORKER)[$error['line'] - 1]);
    }

    /** @dataProvider callbacks */
    public function testAFatalErrorInAnOutputCallbackIsAnswered(string $path, string $message): void
    {
        $worker = $this->start();
        $worker->request(['uri' => "http://h$path"]);
        $reply = $worker->reply();
        $error = end($reply);

        self::assertSame(['error', Native::LEAVING], [$error->kind, $error->flags]);
        self::assertStringContainsString($message, $error->error['message']);
        self::assertSame(255, $worker->wait());
    }

    /** @return iterable<string, array{string, string}> */
    public static function callbacks(): iterable
    {
        yield 'output is locked' => ['/callback-fatal', 'Cannot redeclare'];
        yield 'output is taken down' => ['/callback-buffers', 'Cannot use output buffering'];
    }
}
