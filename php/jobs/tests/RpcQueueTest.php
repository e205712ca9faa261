<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\ConnectionLost;
use Pronghorn\Jobs\JobFailed;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\NotDone;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue;
use Pronghorn\Rpc;
use Pronghorn\RpcError;

final class RpcQueueTest extends TestCase
{
    /** @var resource */
    private $process;
    private Queue $queue;

    protected function setUp(): void
    {
        $this->process = proc_open(
            [PHP_BINARY, __DIR__ . '/fixtures/server.php'],
            [['file', '/dev/null', 'r'], ['pipe', 'w'], STDERR],
            $pipes,
        );
        $this->queue = Queue::connect('tcp://' . trim((string) fgets($pipes[1])), 'mail');
    }

    protected function tearDown(): void
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
    }

    public function testOneJobAndSeveralGoByTheirMethods(): void
    {
        self::assertSame([], $this->queue->batch());
        $id = $this->queue->push('ping', 'x');
        $ids = $this->queue->batch(new NewJob('a'), new NewJob('b', '', new Options(id: 'mine')));
        self::assertSame('mine', $ids[1]);

        self::assertSame('first', $this->queue->push('twice', '', new Options(id: 'second')), 'it is there');

        [[$push, $one], [$batch, $two]] = $this->seen();
        self::assertSame(['jobs.Push', 'ping', $id], [$push, $one['job']['job'], $one['job']['id']]);
        self::assertSame(['jobs.PushBatch', $ids], [$batch, array_column($two['jobs'], 'id')]);
        self::assertSame('mail', $two['jobs'][0]['options']['pipeline']);
    }

    public function testAResultIsWaitedFor(): void
    {
        self::assertSame(['sent' => 3], $this->queue->await('good'));
        self::assertNull($this->queue->await('empty'));
        self::assertSame(1, $this->queue->await('slow', 100.0), 'it asks again');
        $asked = array_column($this->seen(), 1);
        self::assertSame([1000, 1000, 1000, 20000, 20000], array_column($asked, 'timeout_ms'));
        self::assertSame([true, true, true, false, false], array_column($asked, 'explain'));
    }

    public function testAJobThatWasPushedHereIsAskedForInItsPipeline(): void
    {
        $this->queue->push('sum', '', new Options(id: 'good', pipeline: 'other'));
        $this->queue->push('sum', '', new Options(id: 'empty'));
        foreach (['good', 'empty', 'slow'] as $id) {
            $this->queue->await($id);
        }
        $asked = array_column(array_slice($this->seen(), 2), 1);
        self::assertSame(['other', 'mail', '', '', ''], array_column($asked, 'pipeline'));
    }

    public function testAJobThatFailedSaysWhyAndKeepsItsTraceApart(): void
    {
        try {
            $this->queue->await('bad', 0.001);
            self::fail();
        } catch (JobFailed $failed) {
            self::assertSame('no such address', $failed->getMessage());
            self::assertSame('E: no in /a.php:1', $failed->remoteTrace());
        }
    }

    public function testWhyAJobIsNotDoneIsSaid(): void
    {
        foreach (
            [
                'late' => [0.001, 'it waits in the pipeline `mail` for a worker'],
                // Which shows at the first look.
                'unwanted' => [100.0, 'pushed without the option `result`'],
                'lost' => [100.0, 'it was in memory when the server ended'],
                'far' => [0.001, 'a broker, which may have it, does not tell'],
                'unclear' => [0.001, 'was not done in time, or the server does not know it'],
            ] as $id => [$timeout, $said]
        ) {
            try {
                $this->queue->await($id, $timeout);
                self::fail();
            } catch (NotDone $thrown) {
                self::assertStringContainsString($said, $thrown->getMessage());
            }
        }
    }

    public function testABatchGoesWithTheJobThatComesLast(): void
    {
        $last = new NewJob('sum', '', new Options(pipeline: 'other'));
        $id = $this->queue->then($last, new NewJob('a'), new NewJob('b'));
        [[$method, $argument]] = $this->seen();
        self::assertSame(['jobs.Batch', $id], [$method, $argument['then']['id']]);
        self::assertSame('other', $argument['then']['options']['pipeline']);
        self::assertSame(['a', 'b'], array_column($argument['jobs'], 'job'));
        $this->expectException(\ValueError::class);
        $this->queue->then(new NewJob('sum'));
    }

    public function testProgressIsToldWhenThereIsSomeNew(): void
    {
        $told = [];
        $this->queue->await('long', 100.0, function (float $done, string $text) use (&$told): void {
            $told[] = [$done, $text];
        });
        self::assertSame([[0.0, 'halfway'], [0.5, 'halfway']], $told);
        self::assertSame(500, $this->seen()[0][1]['timeout_ms']);
    }

    public function testJobsAreCountedAndRemoved(): void
    {
        $size = $this->queue->size();
        self::assertSame([3, 2, 1, 4.5], [$size->waiting, $size->delayed, $size->running, $size->oldest]);
        self::assertSame(6, $size->total());
        self::assertSame(5, $this->queue->clear());
        self::assertSame('mail', $this->seen()[1][1]['pipeline']);
        foreach (['nowhere' => 'no pipeline `nowhere`', 'lost' => 'the broker is away'] as $pipeline => $said) {
            try {
                $this->queue->size($pipeline);
                self::fail();
            } catch (RpcError $error) {
                self::assertStringContainsString($said, $error->getMessage());
            }
        }
    }

    public function testAnErrorIsTheServersTextAlone(): void
    {
        try {
            $this->queue->push('ping', '', new Options(id: 'nowhere'));
            self::fail();
        } catch (RpcError $error) {
            self::assertSame('no such pipeline, requested: rpc_x: y', $error->getMessage());
        }
    }

    public function testNobodyThereIsSaid(): void
    {
        $this->expectException(ConnectionLost::class);
        Queue::connect('unix:///nonexistent/rpc.sock');
    }

    /** @return list<array{string, mixed}> */
    private function seen(): array
    {
        $rpc = new \ReflectionProperty($this->queue, 'rpc');
        /** @var Rpc $connection */
        $connection = $rpc->getValue($this->queue);

        return $connection->call('test.Seen');
    }
}
