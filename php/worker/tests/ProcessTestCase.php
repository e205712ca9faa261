<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Process;

/**
 * What only a process of its own can show: its start, its end, exit(), fatal errors. The same over
 * every transport.
 */
abstract class ProcessTestCase extends TestCase
{
    protected const WORKER = __DIR__ . '/fixtures/worker.php';

    /** Starts the worker and does the handshake. */
    abstract protected function start(): Process;

    public function testAWorkerServesUntilItIsStopped(): void
    {
        $worker = $this->start();
        foreach ([1, 2] as $call) {
            $worker->request(['call' => $call, 'uri' => 'http://h/pid']);
            self::assertSame((string) $worker->pid(), $worker->reply()[0]->body);
        }
        $worker->send(Codec::control('{"stop":true}'));

        self::assertSame(0, $worker->wait());
        self::assertSame("stopped\nafter run\n", $worker->output());
    }

    public function testAWorkerEndsQuietlyWhenTheServerIsGone(): void
    {
        $worker = $this->start();
        $worker->hangUp();

        self::assertSame(0, $worker->wait());
        self::assertSame("stopped\nafter run\n", $worker->output());
    }

    public function testNonsenseFromTheServerEndsTheWorkerWithAMessage(): void
    {
        $worker = $this->start();
        $worker->send("GET / HTTP/1.1\r\n\r\n");

        self::assertSame(1, $worker->wait());
        self::assertStringContainsString('pronghorn: crc: these bytes are no Goridge', $worker->output());
        self::assertStringContainsString('"GET / HTTP', $worker->output());
    }

    /** @dataProvider fatal */
    public function testAFatalErrorIsReported(string $path, string $message): void
    {
        $worker = $this->start();
        $worker->request(['uri' => "http://h$path"]);
        $reply = $worker->reply();
        $error = end($reply);

        self::assertSame(['error', Native::LEAVING], [$error->kind, $error->flags]);
        self::assertSame(\ErrorException::class, $error->error['class']);
        self::assertStringContainsString($message, $error->error['message']);
        self::assertStringStartsWith(self::WORKER, (string) realpath(explode('(', $error->error['file'])[0]));
        self::assertSame(255, $worker->wait());
    }

    /** @return iterable<string, array{string, string}> */
    public static function fatal(): iterable
    {
        yield 'out of memory' => ['/memory', 'Allowed memory size of'];
        yield 'out of memory, to the last page' => ['/memory-to-the-last-page', 'Allowed memory size of'];
        yield 'out of memory in a stream' => ['/memory-in-a-stream', 'Allowed memory size of'];
        $twice = \PHP_VERSION_ID < 80400 ? 'Cannot redeclare twice()' : 'Cannot redeclare function twice()';
        yield 'a function declared twice' => ['/fatal', $twice];
    }

    public function testAnEchoTooLongToKeepIsSentAsItComes(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/too-much-exit']);
        $reply = $worker->reply();

        self::assertSame(['reply', 200], [$reply[0]->kind, $reply[0]->number]);
        self::assertSame(6 * 1024 * 1024, strlen(implode('', array_column($reply, 'body'))));
        $worker->hangUp();
        $worker->wait();
        self::assertStringNotContainsString('xxx', $worker->output());
    }

    public function testAWorkerAnswersRawCallsUntilItIsStopped(): void
    {
        $worker = $this->start();
        $worker->raw('abc', ['call' => 1]);
        self::assertSame('cba', $worker->reply()[0]->body);
        $worker->request(['call' => 2, 'uri' => 'http://h/pid']);
        self::assertSame((string) $worker->pid(), $worker->reply()[0]->body);
        $worker->send(Codec::control('{"stop":true}'));

        self::assertSame(0, $worker->wait());
    }

    /** What it echoed is text for the log, and no reply. */
    public function testAnExitFailsARawCall(): void
    {
        $worker = $this->start();
        $worker->raw('echo-exit');
        [$error] = $worker->reply();

        self::assertSame('error', $error->kind);
        self::assertStringStartsWith('exit() ended the call, and nothing', $error->error['message']);
        $worker->hangUp();
        $worker->wait();
        self::assertStringContainsString("echoed\n", $worker->output());
    }

    public function testAFatalErrorFailsARawCall(): void
    {
        $worker = $this->start();
        $worker->raw('fatal');
        [$error] = $worker->reply();

        self::assertSame(['error', Native::LEAVING], [$error->kind, $error->flags]);
        self::assertStringContainsString('twice()', $error->error['message']);
        self::assertSame(255, $worker->wait());
    }

    public function testAJobThatEndsItsCallHasFailed(): void
    {
        $worker = $this->start();
        $worker->job('', ['call' => 1, 'name' => 'exit']);
        self::assertSame('error', $worker->reply()[0]->kind);
        if ($worker->usesBox) {
            $worker->job('', ['call' => 2]);
            self::assertSame(Native::JOB_DONE, $worker->reply()[0]->number);
        }
        $worker->hangUp();
        $worker->wait();
    }

    /**
     * @dataProvider spoiled
     * @param list<array{string, int, string}> $expected kind, flags and body of each message
     */
    public function testASpoiledProcessEndsBeforeItTakesAnotherCall(string $kind, string $what, array $expected): void
    {
        $worker = $this->start();
        $fields = ['call' => 1, 'name' => $what, 'uri' => "http://h/$what"];
        $kind === 'job' ? $worker->job('', $fields) : $worker->request($fields);
        // It is there already.
        $worker->request(['call' => 2, 'uri' => 'http://h/pid']);
        $messages = [];
        while (($message = $worker->read()) !== null) {
            $messages[] = [$message->kind, $message->flags, $message->body];
        }

        // The server is neither told that it is free nor answered a call that it did not do.
        self::assertSame($expected, $messages);
        self::assertSame(0, $worker->wait());
        $log = $worker->output();
        self::assertStringContainsString('this process ends with', $log);
        self::assertStringContainsString('WorkerSpoiled: on purpose', $log);
        self::assertSame($what === 'defer-spoiled' && $kind === 'http', str_contains($log, 'the last work'));
        self::assertStringContainsString("stopped\nafter run\n", $log);
    }

    /** @return iterable<string, array<mixed>> */
    public static function spoiled(): iterable
    {
        yield 'by a handler' => ['http', 'spoiled', []];
        yield 'within a reply' => ['http', 'stream-spoiled', [['reply', 0, 'a']]];
        yield 'by deferred work' => ['http', 'defer-spoiled', [['reply', Native::BUSY, 'before']]];
        yield 'by a job' => ['job', 'spoiled', []];
        yield 'by deferred work of a job' => ['job', 'defer-spoiled', [['reply', Native::BUSY, '']]];
    }

    public function testAnErrorIsNoEnd(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/undefined']);
        self::assertSame('Call to undefined function undefined()', $worker->reply()[0]->error['message']);
        $worker->request(['uri' => 'http://h/']);
        self::assertSame('nothing special', $worker->reply()[0]->body);
    }

    /** @requires extension pcntl */
    public function testAForkedChildAnswersNothing(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/fork-exit']);

        self::assertSame('child ended with 5', $worker->reply()[0]->body);
    }

    /** @requires extension pcntl */
    public function testSignalHandlersRunWhileTheWorkerWaits(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/signal']);
        self::assertSame('on', $worker->reply()[0]->body);
        // One that comes just before the wait begins is seen with the next one, which must not find
        // a worker that ends.
        for ($tries = 0; $tries < 10 && !$worker->stirs(2); $tries++) {
            posix_kill($worker->pid(), SIGUSR1);
        }
        self::assertSame(7, $worker->wait());
        self::assertSame('', $worker->output(), 'it waited, so there was no call to answer');
    }

    public function testChildrenDoNotTakeThemselvesForWorkers(): void
    {
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/environment']);
        self::assertSame('[false,"0.0.0"]', $worker->reply()[0]->body);
    }

    public function testLongBodiesPassBothWays(): void
    {
        $body = random_bytes(3_000_000);
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/mirror'], $body);
        self::assertSame($body, $worker->reply()[0]->body);
        $worker->request(['uri' => 'http://h/large']);
        self::assertSame(16 * 1024 * 1024, strlen($worker->reply()[0]->body));
    }

    public function testABodyInAFileIsNotLoaded(): void
    {
        $file = tmpfile();
        ftruncate($file, 64 * 1024 * 1024);
        $path = stream_get_meta_data($file)['uri'];
        $worker = $this->start();
        $worker->request(['uri' => 'http://h/file', 'flags' => Native::BODY_FILE], $path);
        self::assertSame('error', $worker->reply()[0]->kind, 'its contents were asked for at once');

        $worker = $this->start();
        ftruncate($file, 1_000_000);
        $worker->request(['uri' => 'http://h/file', 'flags' => Native::BODY_FILE], $path);
        self::assertSame('[1000000,true]', $worker->reply()[0]->body);
    }

    public function testABodyThatDoesNotFitIsAnErrorOfOneCall(): void
    {
        $file = tmpfile();
        ftruncate($file, 64 * 1024 * 1024);
        $worker = $this->start();
        $path = stream_get_meta_data($file)['uri'];
        $worker->request(['uri' => 'http://h/file-body', 'flags' => Native::BODY_FILE], $path);
        $error = $worker->reply()[0];
        self::assertSame(['error', 0], [$error->kind, $error->flags]);
        self::assertStringContainsString('Read it from stream()', $error->error['message']);
        $worker->request(['uri' => 'http://h/']);
        self::assertSame('nothing special', $worker->reply()[0]->body);
    }
}
