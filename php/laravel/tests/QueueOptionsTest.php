<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Bus\BatchRepository;
use Illuminate\Bus\BusServiceProvider;
use Illuminate\Bus\Dispatcher;
use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Config\Repository;
use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Queue\ClearableQueue;
use Illuminate\Database\DatabaseServiceProvider;
use Illuminate\Encryption\EncryptionServiceProvider;
use Illuminate\Foundation\Application;
use Illuminate\Queue\Events\JobQueued;
use Illuminate\Queue\Events\Looping;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Illuminate\Queue\QueueManager;
use Illuminate\Queue\QueueServiceProvider;
use Illuminate\Support\Facades\Facade;
use PHPUnit\Framework\TestCase;
use Pronghorn\DeadlineExceeded;
use Pronghorn\Internal\Native;
use Pronghorn\Job;
use Pronghorn\Jobs\FakeQueue;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\Queue;
use Pronghorn\Laravel\PronghornServiceProvider;
use Pronghorn\Laravel\Queue\JobRunner;
use Pronghorn\Laravel\Queue\PronghornQueue;
use Pronghorn\RpcError;

/** Every option of Laravel's queue, by its own dispatcher, transactions and worker. */
final class QueueOptionsTest extends TestCase
{
    /** Attempts that the server of these tests makes of one job. */
    private const MOST = 20;

    private Application $app;
    private FakeQueue $pushed;
    private PronghornQueue $queue;
    private JobRunner $runner;
    /** @var list<string> outcomes of attempts */
    private array $outcomes = [];
    private int $reporting;

    public static function setUpBeforeClass(): void
    {
        if (!\class_exists(DeadlineExceeded::class)) {
            require __DIR__ . '/../../worker/stubs/extension.php';
        }
    }

    protected function setUp(): void
    {
        // Laravel 8 knows nothing of PHP 8.2.
        $this->reporting = \error_reporting(\E_ALL & ~\E_DEPRECATED);
        $app = $this->app = new Application('/nowhere');
        Facade::clearResolvedInstances();
        Facade::setFacadeApplication($app);
        $connection = ['driver' => 'pronghorn', 'queue' => 'mail', 'tries' => 3, 'after_commit' => false];
        $app->instance('config', new Repository([
            'app' => ['key' => \str_repeat('k', 32), 'cipher' => 'AES-256-CBC'],
            'cache' => ['default' => 'array', 'stores' => ['array' => ['driver' => 'array']]],
            'database' => [
                'default' => 'sqlite',
                'connections' => ['sqlite' => ['driver' => 'sqlite', 'database' => ':memory:']],
            ],
            'queue' => [
                'default' => 'ours',
                'connections' => ['ours' => $connection, 'second' => ['tries' => 1] + $connection],
                'failed' => ['driver' => 'null'],
                'batching' => ['database' => 'sqlite', 'table' => 'job_batches'],
            ],
        ]));
        $app->instance(ExceptionHandler::class, $this->createStub(ExceptionHandler::class));
        $providers = [
            BusServiceProvider::class, CacheServiceProvider::class, DatabaseServiceProvider::class,
            EncryptionServiceProvider::class, QueueServiceProvider::class, PronghornServiceProvider::class,
        ];
        \array_map($app->register(...), $providers);
        $app->boot();
        $this->pushed = Queue::fake('mail');
        $this->queue = $this->connection('ours');
        $this->runner = new JobRunner($app);
        Task::$seen = Task::$does = [];
    }

    protected function tearDown(): void
    {
        Container::setInstance(null);
        \error_reporting($this->reporting);
    }

    public function testWhatATransactionHoldsBackIsPushedOnceAtTheCommit(): void
    {
        $jobs = [
            'by the connection' => [$this->connection('ours', afterCommit: true), new Task('a')],
            'by the job' => [$this->queue, (new Task('a'))->afterCommit()],
        ];
        foreach ($jobs as $how => [$queue, $task]) {
            $this->database()->beginTransaction();
            self::assertNull($queue->push($task), $how);
            self::assertNull($queue->later(60, $task), $how);
            self::assertNull($queue->pushOn('slow', $task), $how);
            $queue->bulk([$task, $task]);
            self::assertCount(0, $this->pushed->pushed(), $how);
            $this->database()->commit();
            self::assertSame([3, 1, 1], $this->sizes(), $how);

            $this->database()->beginTransaction();
            $queue->push($task);
            $this->database()->rollBack();
            self::assertSame([3, 1, 1], $this->sizes(), "$how: rolled back");
            \array_map($this->pushed->clear(...), ['mail', 'slow']);
        }
        self::assertNotNull($this->connection('ours', afterCommit: true)->push((new Task('a'))->beforeCommit()));
        $this->connection('ours', afterCommit: true)->push(new Task('a'));
        self::assertSame([2, 0, 0], $this->sizes(), 'without a transaction at once');
    }

    public function testTheDispatcherTakesNullForAnAnswer(): void
    {
        $this->database()->transaction(static function (): void {
            dispatch((new Task('a'))->afterCommit());
            Task::dispatch('b')->afterCommit()->delay(5);
        });
        self::assertSame([1, 1, 0], $this->sizes());
    }

    public function testEachLinkOfAChainRunsOnce(): void
    {
        foreach ([false, true] as $afterCommit) {
            $this->queue = $this->connection('ours', $afterCommit);
            Task::$seen = [];
            dispatch((new Task('a'))->chain([new Task('b'), (new Task('c'))->onQueue('slow')]));
            $this->drain();
            self::assertSame(['a', 'b', 'c'], Task::$seen);
        }
    }

    public function testAChainEndsWithALinkThatFails(): void
    {
        Task::$does = ['b' => static fn () => throw new \DomainException('no')];
        dispatch((new Task('a'))->chain([new Task('b'), new Task('c')]));
        $this->drain();
        self::assertSame(['a', 'b', 'b', 'b', 'b failed: no'], Task::$seen);
    }

    public function testJobsOfAConnectionKeepItsNameAndItsTries(): void
    {
        Task::$does = ['a' => static function (Task $task): void {
            Task::$seen[] = $task->job->getConnectionName() . ' ' . $task->job->getQueue();
            throw new \DomainException('no');
        }];
        dispatch((new Task('a'))->onConnection('second')->onQueue('slow'));
        self::assertSame([2], \array_column(\array_column($this->pushed->pushed(), 'options'), 'attempts'));
        $this->drain();
        self::assertSame(['a', 'second slow', 'a failed: no'], Task::$seen);
    }

    public function testTriesAndWaitsAreTheJobs(): void
    {
        Task::$does = ['a' => static fn () => throw new \DomainException('no')];
        $task = new Task('a');
        [$task->tries, $task->backoff] = [4, [1, 5]];
        $this->queue->push($task);
        $this->drain();
        self::assertSame(['again in 1 s', 'again in 5 s', 'again in 5 s', 'given up'], $this->outcomes);
    }

    public function testExceptionsAreCountedApartFromTries(): void
    {
        Task::$does = ['a' => static fn (Task $task) => $task->attempts() % 2 === 0
            ? throw new \DomainException('no')
            : $task->release(3)];
        $task = new Task('a');
        [$task->tries, $task->maxExceptions] = [10, 2];
        $this->queue->push($task);
        $this->drain();
        self::assertSame(['again in 3 s', 'again in 0 s', 'again in 3 s', 'given up'], $this->outcomes);
    }

    public function testAJobIsTriedUntilItsMoment(): void
    {
        Task::$does = ['a' => static fn () => throw new \DomainException('no')];
        $task = new Task('a');
        [$task->tries, $task->retryUntil] = [1, \time() + 100];
        $this->queue->push($task);
        $task->retryUntil = \time() - 1;
        $this->queue->push($task);
        $task->retryUntil = null;
        $task->tries = 0;
        $this->queue->push($task);
        $attempts = \array_column(\array_column($this->pushed->pushed(), 'options'), 'attempts');
        self::assertSame([1_000_000, 1_000_000, 1_000_000], $attempts);
        $this->drain();
        $again = \array_fill(0, self::MOST, 'again in 0 s');
        self::assertSame([...$again, 'given up', ...$again], $this->outcomes);
    }

    public function testAJobWhoseWorkersDiedIsToldThatItHasFailed(): void
    {
        $task = new Task('a');
        $task->tries = 2;
        $this->queue->push($task);
        [$job] = $this->pushed->pushed();
        self::assertSame(3, $job->options->attempts);
        self::assertSame(Native::JOB_FAILED, $this->attempt($job, 3)->outcome()[0]);
        self::assertCount(1, Task::$seen);
        self::assertStringContainsString('attempted too many times', Task::$seen[0]);
    }

    public function testATimeOutIsAFailedTry(): void
    {
        Task::$does = ['a' => static function (): void {
            // The alarm comes in the middle of it.
            for ($until = \hrtime(true) + 5e9; \hrtime(true) < $until;) {
                \usleep(1000); // phpcs:ignore Generic.PHP.ForbiddenFunctions -- as a slow job
            }
        }];
        $task = new Task('a');
        [$task->tries, $task->timeout] = [2, 1];
        $this->queue->push($task);
        $task->failOnTimeout = true;
        $this->queue->push($task);
        // The server's is later than Laravel's own.
        self::assertSame([6.0, 6.0], \array_column(\array_column($this->pushed->pushed(), 'options'), 'deadline'));
        $this->drain();
        self::assertSame(['again in 0 s', 'given up', 'given up'], $this->outcomes);
        self::assertSame(['a', 'a', 'a failed: ' . Task::class . ' has timed out.'], \array_slice(Task::$seen, 0, 3));
    }

    public function testAtTheServersDeadlineTheServerDecides(): void
    {
        Task::$does = ['a' => static fn () => throw new DeadlineExceeded('10 s')];
        $task = new Task('a');
        $task->tries = 1;
        $this->queue->push($task);
        [$job] = $this->pushed->pushed();
        self::assertSame(Native::JOB_DONE, $this->attempt($job, 1)->outcome()[0], 'nobody hears it');
        self::assertSame(Native::JOB_FAILED, $this->attempt($job, 2)->outcome()[0]);
        self::assertCount(2, Task::$seen, 'it has failed once');
    }

    public function testAUniqueJobIsPushedOnceUntilItIsDone(): void
    {
        UniqueTask::dispatch('a');
        UniqueTask::dispatch('a');
        UniqueTask::dispatch('b');
        self::assertSame([2, 0, 0], $this->sizes());
        $this->drain();
        UniqueTask::dispatch('a');
        self::assertSame([1, 0, 0], $this->sizes());
        Task::$does = ['a' => static fn (Task $task) => $task->fail(new \DomainException('no'))];
        $this->drain();
        UniqueTask::dispatch('a');
        self::assertSame([1, 0, 0], $this->sizes(), 'one that was given up is no hindrance');
    }

    public function testAnEncryptedJobIsReadByNobodyElse(): void
    {
        dispatch(new SecretTask('the password'));
        self::assertStringNotContainsString('the password', $this->pushed->pushed()[0]->payload);
        $this->drain();
        self::assertSame(['the password'], Task::$seen);
    }

    public function testABatchIsPushedAtOnceAndEnds(): void
    {
        $this->app->make('db')->connection()->getSchemaBuilder()->create('job_batches', static function ($table): void {
            $table->string('id')->primary();
            $table->string('name');
            \array_map($table->integer(...), ['total_jobs', 'pending_jobs', 'failed_jobs', 'created_at']);
            $table->text('failed_job_ids');
            $table->mediumText('options')->nullable();
            $table->integer('cancelled_at')->nullable();
            $table->integer('finished_at')->nullable();
        });
        Task::$does = ['b' => static fn () => throw new \DomainException('no')];
        $delayed = (new Task('c'))->delay(60);
        $batch = $this->app->make(Dispatcher::class)->batch([new Task('a'), new Task('b'), $delayed])
            ->allowFailures()->then(static fn () => Task::$seen[] = 'then')
            ->finally(static fn () => Task::$seen[] = 'finally')->dispatch();
        self::assertSame([2, 1, 0], $this->sizes());
        $this->drain();
        self::assertSame(['a', 'b', 'b', 'b', 'b failed: no', 'c', 'finally'], Task::$seen);
        $batch = $this->app->make(BatchRepository::class)->find($batch->id);
        self::assertSame([3, 1], [$batch->totalJobs, $batch->failedJobs]);
    }

    public function testNothingOfABulkIsPushedIfOneOfItCanNotBe(): void
    {
        try {
            $this->queue->bulk([new Task('a'), new Task("\xff")]);
            self::fail();
        } catch (\Throwable $thrown) {
            self::assertStringContainsString('JSON', $thrown->getMessage());
        }
        self::assertSame([0, 0, 0], $this->sizes());
        $this->queue->push(new Task('a'));
        self::assertSame([1, 0, 0], $this->sizes(), 'the next push goes at once');
    }

    public function testABulkIsOneCallOfTheServer(): void
    {
        $jobs = $this->createMock(Queue::class);
        $jobs->expects(self::once())->method('batch')
            ->willReturnCallback(static fn (NewJob ...$jobs) => throw new RpcError(count($jobs) . ' are too many'));
        $queue = new PronghornQueue(static fn (): Queue => $jobs, 'mail');
        $queue->setContainer($this->app);
        $queue->bulk([]);
        $this->expectExceptionMessage('2500 are too many');
        $queue->bulk(array_fill(0, 2500, new Task('a')));
    }

    public function testADelayIsAnyOfLaravels(): void
    {
        $this->queue->later(new \DateInterval('PT90S'), new Task('a'));
        $this->queue->later(new \DateTimeImmutable('+30 minutes'), new Task('a'));
        $this->queue->later(-5, new Task('a'));
        $this->queue->laterOn('slow', 7, new Task('a'));
        dispatch((new Task('a'))->delay(9));
        $delays = \array_column(\array_column($this->pushed->pushed(), 'options'), 'delay');
        self::assertEqualsWithDelta([90, 1800, 0, 7, 9], $delays, 2);
    }

    public function testClosuresNamesAndRawPayloadsAreJobs(): void
    {
        dispatch(static function (): void {
            Task::$seen[] = 'closure';
        });
        $this->queue->push(self::class . '@called', ['x' => 1]);
        $this->queue->pushRaw($this->pushed->pushed()[1]->payload, 'slow');
        $this->queue->push(new Task('to the default one'), '', '');
        $this->drain();
        self::assertSame(['closure', 'called {"x":1}', 'called {"x":1}', 'to the default one'], Task::$seen);
    }

    /** @param array<string, int> $data */
    public function called(object $job, array $data): void
    {
        Task::$seen[] = 'called ' . \json_encode($data);
        $job->delete();
    }

    public function testMiddlewareMayPutAJobBack(): void
    {
        $this->app->make('cache.store')->lock('laravel-queue-overlap:' . Task::class . ':key', 60)->get();
        $task = new Task('a');
        $task->through = [(new WithoutOverlapping('key'))->releaseAfter(11)];
        $this->queue->push($task);
        $task->through = [(new WithoutOverlapping('key'))->dontRelease()];
        $this->queue->push($task);
        $this->drain();
        self::assertSame([...\array_fill(0, 3, 'again in 11 s'), 'given up', 'done'], $this->outcomes);
        self::assertCount(1, Task::$seen);
    }

    public function testADeletedJobIsDone(): void
    {
        Task::$does = ['a' => static function (Task $task): void {
            $task->delete();
            throw new \DomainException('no');
        }];
        $this->queue->push(new Task('a'));
        $this->drain();
        self::assertSame(['done'], $this->outcomes);
    }

    public function testEventsAndHooksAreLaravels(): void
    {
        $heard = [];
        $events = $this->app->make('events');
        $events->listen(JobQueued::class, static function (JobQueued $event) use (&$heard): void {
            $heard[] = 'queued ' . \gettype($event->id);
        });
        $events->listen(Looping::class, static function (Looping $event) use (&$heard): void {
            $heard[] = "looping $event->connectionName $event->queue";
        });
        PronghornQueue::createPayloadUsing(static fn (): array => ['tenant' => 7]);
        try {
            $this->queue->push(new Task('a'));
            $this->queue->bulk([new Task('b')]);
        } finally {
            PronghornQueue::createPayloadUsing(null);
        }
        self::assertSame(7, \json_decode($this->pushed->pushed()[0]->payload, true)['tenant']);
        $this->drain();
        $looping = 'looping ours mail';
        self::assertSame(['queued string', 'queued string', $looping, $looping], $heard);
    }

    public function testAQueueIsCountedAndCleared(): void
    {
        self::assertInstanceOf(ClearableQueue::class, $this->queue);
        $this->queue->push(new Task('a'));
        $this->queue->later(60, new Task('a'));
        $this->queue->later(60, new Task('a'));
        $this->queue->pushOn('slow', new Task('a'));
        $queue = $this->queue;
        self::assertSame([3, 1, 2, 0], [
            $queue->size(), $queue->pendingSize(), $queue->delayedSize(), $queue->reservedSize(),
        ]);
        self::assertNull($queue->creationTimeOfOldestPendingJob());
        self::assertSame(1, $queue->size('slow'));
        self::assertSame(3, $queue->clear('mail'));
        self::assertSame([0, 1], [$queue->size(), $queue->size('slow')]);
    }

    private function connection(string $name, bool $afterCommit = false): PronghornQueue
    {
        $this->app->make('config')->set("queue.connections.$name.after_commit", $afterCommit);
        $queues = new QueueManager($this->app);
        $queues->addConnector('pronghorn', fn (): FakeConnector => new FakeConnector($this->pushed));
        $this->app->instance('queue', $queues);

        return $queues->connection($name);
    }

    private function database(): \Illuminate\Database\Connection
    {
        return $this->app->make('db')->connection();
    }

    /** @return array{int, int, int} jobs of `mail` that wait and that are delayed, and those of `slow` */
    private function sizes(): array
    {
        $mail = $this->pushed->size('mail');

        return [$mail->waiting, $mail->delayed, $this->pushed->size('slow')->total()];
    }

    /** Runs what there is, and what that pushes, as the server does; delays pass at once. */
    private function drain(): void
    {
        while (($jobs = $this->pushed->pushed()) !== []) {
            \array_map($this->pushed->clear(...), ['mail', 'slow']);
            \array_map($this->untilItsEnd(...), $jobs);
        }
    }

    private function untilItsEnd(NewJob $job): void
    {
        $most = \min($job->options->attempts, self::MOST);
        for ($attempt = 1; $attempt <= $most; $attempt++) {
            [$outcome, $delay] = $this->attempt($job, $attempt)->outcome();
            $this->outcomes[] = match ($outcome) {
                Native::JOB_DONE => 'done',
                Native::JOB_RETRY => 'again in ' . $delay / 1000 . ' s',
                Native::JOB_FAILED => 'given up',
            };
            if ($outcome !== Native::JOB_RETRY) {
                return;
            }
        }
    }

    private function attempt(NewJob $job, int $attempt): Job
    {
        $headers = \array_map(static fn (string $value): array => [$value], $job->options->headers);
        $asked = new Job($job->name, $job->payload, $headers, 'id', $job->options->pipeline, 'memory', $attempt);
        $this->runner->run($asked);

        return $asked;
    }
}
