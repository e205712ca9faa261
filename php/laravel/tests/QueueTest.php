<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Bus\BusServiceProvider;
use Illuminate\Config\Repository;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Foundation\Application;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\Failed\FailedJobProviderInterface;
use Illuminate\Queue\QueueServiceProvider;
use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Native;
use Pronghorn\Job;
use Pronghorn\Jobs\FakeQueue;
use Pronghorn\Jobs\Queue;
use Pronghorn\Laravel\PronghornServiceProvider;
use Pronghorn\Laravel\Queue\JobRunner;
use Pronghorn\Laravel\Queue\PronghornQueue;

final class QueueTest extends TestCase
{
    private Application $app;
    private FakeQueue $pushed;
    private PronghornQueue $queue;

    protected function setUp(): void
    {
        $this->app = new Application('/nowhere');
        $this->app->instance('config', new Repository(['queue' => [
            'default' => 'ours',
            'connections' => ['ours' => ['driver' => 'pronghorn', 'queue' => 'mail', 'tries' => 2, 'backoff' => 7]],
            'failed' => ['driver' => 'null'],
        ]]));
        $this->app->instance(ExceptionHandler::class, $this->createStub(ExceptionHandler::class));
        $this->app->register(BusServiceProvider::class);
        $this->app->register(QueueServiceProvider::class);
        $this->app->register(PronghornServiceProvider::class);
        $this->pushed = Queue::fake('mail');
        $this->queue = new PronghornQueue(fn (): Queue => $this->pushed, 'mail');
        $this->queue->setContainer($this->app);
        $this->queue->setConnectionName('ours');
        Greeting::$done = [];
    }

    public function testTheDriverIsThere(): void
    {
        self::assertInstanceOf(PronghornQueue::class, $this->app->make('queue')->connection());
    }

    public function testWhatIsPushedIsAJobOfThePipeline(): void
    {
        $this->queue->push(new Greeting('ada'));
        $this->queue->later(60, new Greeting('grace'), '', 'slow');
        $this->queue->pushRaw('{"displayName":"raw"}');

        $pushed = $this->pushed->pushed();
        self::assertSame([Greeting::class, Greeting::class, 'raw'], array_column($pushed, 'name'));
        $options = array_column($pushed, 'options');
        self::assertSame(['mail', 'slow', 'mail'], array_column($options, 'pipeline'));
        self::assertSame([0, 60, 0], array_column($options, 'delay'));
        self::assertSame([35.0, 35.0, null], array_column($options, 'deadline'));
    }

    public function testAJobIsRun(): void
    {
        self::assertSame(Native::JOB_DONE, $this->outcomeOf('ada')[0]);
        self::assertSame(['ada'], Greeting::$done);
    }

    public function testAJobThatThrowsRunsAgainAndIsGivenUpAtLast(): void
    {
        $failer = $this->createMock(FailedJobProviderInterface::class);
        $failer->expects(self::once())->method('log')->with('ours', 'mail', self::stringContains('throws'));
        $this->app->instance('queue.failer', $failer);

        [$outcome, $delay, $reason] = $this->outcomeOf('throws');
        self::assertSame([Native::JOB_RETRY, 7000], [$outcome, $delay]);
        self::assertStringContainsString('DomainException: on purpose', $reason);
        [$outcome, , $reason] = $this->outcomeOf('throws', attempt: 2);
        self::assertSame(Native::JOB_FAILED, $outcome);
        self::assertStringContainsString('DomainException: on purpose', $reason);
    }

    public function testAJobMayReleaseOrFailItself(): void
    {
        self::assertSame([Native::JOB_RETRY, 90_000], \array_slice($this->outcomeOf('release'), 0, 2));
        self::assertSame(Native::JOB_FAILED, $this->outcomeOf('fail')[0]);
    }

    public function testQueueWorkIsToldWhoRunsJobs(): void
    {
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('pronghorn.yaml');
        $this->queue->pop();
    }

    /** @return array{int, int, string} what the server is told of a job with this name */
    private function outcomeOf(string $name, int $attempt = 1): array
    {
        $this->queue->push(new Greeting($name));
        $pushed = $this->pushed->pushed();
        $job = new Job(Greeting::class, end($pushed)->payload, [], 'id', 'mail', 'memory', $attempt);
        (new JobRunner($this->app))->run($job);
        $this->app->make('events')->forget(JobFailed::class);

        return $job->outcome();
    }
}
