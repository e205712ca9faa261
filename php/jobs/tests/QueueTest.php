<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Jobs\FakeQueue;
use Pronghorn\Jobs\Internal\Message;
use Pronghorn\Jobs\JobFailed;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\NotDone;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue;

final class QueueTest extends TestCase
{
    public function testAStringTravelsAsItIs(): void
    {
        $message = Message::of(new NewJob('ping', "\0\xff"), 'mail');
        self::assertMatchesRegularExpression('/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]/', $message['id']);
        unset($message['id']);
        self::assertEquals([
            'job' => 'ping',
            'payload' => base64_encode("\0\xff"),
            'headers' => (object) [],
            'options' => ['pipeline' => 'mail', 'priority' => 0, 'delay' => 0, 'auto_ack' => false],
        ], $message);
    }

    public function testAllElseTravelsAsJsonAndEachOptionHasItsPlace(): void
    {
        $options = new Options(
            pipeline: 'kept',
            priority: 3,
            delay: 5,
            headers: ['a' => ['1', '2'], 'b' => 'x'],
            autoAck: true,
            pool: 'heavy',
            deadline: 1.5,
            expires: 1e6,
            unique: 'key',
            uniqueFor: 60,
            result: true,
            id: 'mine',
            attempts: 4,
        );
        self::assertEquals([
            'job' => 'ping',
            'id' => 'mine',
            'payload' => base64_encode('{"to":"a/b","price":5.0}'),
            'headers' => (object) [
                'a' => ['value' => ['1', '2']],
                'b' => ['value' => ['x']],
                'pool' => ['value' => ['heavy']],
                'pronghorn-deadline' => ['value' => ['1.500']],
                'pronghorn-expires' => ['value' => ['1000000.000']],
                'pronghorn-unique' => ['value' => ['key']],
                'pronghorn-unique-for' => ['value' => ['60.000']],
                'pronghorn-result' => ['value' => ['keep']],
                'pronghorn-attempts' => ['value' => ['4']],
                'content-type' => ['value' => ['application/json']],
            ],
            'options' => ['pipeline' => 'kept', 'priority' => 3, 'delay' => 5, 'auto_ack' => true],
        ], Message::of(new NewJob('ping', ['to' => 'a/b', 'price' => 5.0], $options), 'mail'));
    }

    public function testAPayloadThatIsNoJsonIsRefused(): void
    {
        $this->expectException(\JsonException::class);
        Queue::fake()->push('ping', \NAN);
    }

    public function testAFakeCountsAndRemovesWhatWasPushed(): void
    {
        $queue = Queue::fake('mail');
        $queue->push('ping');
        $queue->later(60, 'ping');
        $queue->push('ping', '', new Options(pipeline: 'other'));
        $size = $queue->size();
        self::assertSame([1, 1, 0, 2], [$size->waiting, $size->delayed, $size->running, $size->total()]);
        self::assertSame(2, $queue->clear());
        self::assertSame([0, 1], [$queue->size()->total(), $queue->size('other')->total()]);
    }

    public function testAFakeKeepsWhatIsPushed(): void
    {
        $queue = Queue::fake('mail');
        self::assertNotSame($queue->push('ping', [1]), $queue->later(60, 'ping', 'x', new Options(priority: 2)));
        $queue->batch(new NewJob('pong'), new NewJob('pong', 2, new Options(id: 'two', pipeline: 'other')));

        [$first, $later] = $queue->pushed('ping');
        self::assertSame([[1], 'mail', 0], [$first->payload, $first->options->pipeline, $first->options->delay]);
        self::assertSame(['x', 60, 2], [$later->payload, $later->options->delay, $later->options->priority]);
        self::assertSame(['other', 'two'], [
            $queue->pushed('pong')[1]->options->pipeline, $queue->pushed('pong')[1]->options->id,
        ]);
        self::assertCount(4, $queue->pushed());
    }

    public function testAFakeGivesTheResultsThatItIsTold(): void
    {
        $queue = Queue::fake()->handle('sum', fn (NewJob $job) => array_sum($job->payload))
            ->handle('fail', fn () => throw new JobFailed('no'));
        self::assertSame(3, $queue->await($queue->push('sum', [1, 2])));
        foreach (['fail' => JobFailed::class, 'other' => NotDone::class] as $name => $class) {
            try {
                $queue->await($queue->push($name));
                self::fail();
            } catch (JobFailed | NotDone $thrown) {
                self::assertInstanceOf($class, $thrown);
            }
        }
        $this->expectException(NotDone::class);
        $queue->await('nobody');
    }

    public function testAFloatStaysOneInAResult(): void
    {
        $queue = Queue::fake();
        $queue->handle('sum', static fn (): array => [1.0, 2]);
        self::assertSame([1.0, 2], $queue->await($queue->push('sum')));
    }

    public function testCodeThatWantsAQueueTakesTheFake(): void
    {
        $push = fn (Queue $queue): string => $queue->push('ping');
        self::assertNotSame('', $push(Queue::fake()));
        self::assertInstanceOf(FakeQueue::class, Queue::fake());
    }
}
