<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Contracts\Queue\ClearableQueue;
use Illuminate\Contracts\Queue\Queue as QueueContract;
use Illuminate\Queue\Attributes\Delay;
use Illuminate\Queue\Queue;
use Illuminate\Support\Str;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue as Jobs;
use Pronghorn\Jobs\Size;

/** Laravel's queue over the server's: a queue of Laravel is a pipeline of the server. */
final class PronghornQueue extends Queue implements QueueContract, ClearableQueue
{
    /** The header that names the connection of a job, for an application may have several. */
    public const CONNECTION = 'x-laravel-connection';

    /** Seconds after a job's time-out, for what Laravel does then, until the server ends its worker. */
    private const GRACE = 5.0;
    /** Attempts of a job whose end only Laravel knows, by `retryUntil` or because its tries have none. */
    private const ENDLESS = 1_000_000;

    private ?Jobs $jobs = null;
    /** @var ?list<NewJob> those of a `bulk()` that is under way */
    private ?array $together = null;

    /**
     * @param \Closure(): Jobs $connect
     * @param int $tries of jobs that don't say it themselves; 0: without an end
     */
    public function __construct(
        private readonly \Closure $connect,
        private readonly string $pipeline,
        bool $afterCommit = false,
        private readonly int $tries = Connector::TRIES,
    ) {
        $this->dispatchAfterCommit = $afterCommit;
    }

    /** @param \UnitEnum|string|null $queue */
    public function size($queue = null): int
    {
        return $this->count($queue)->total();
    }

    /** @param \UnitEnum|string|null $queue */
    public function pendingSize($queue = null): int
    {
        return $this->count($queue)->waiting;
    }

    /** @param \UnitEnum|string|null $queue */
    public function delayedSize($queue = null): int
    {
        return $this->count($queue)->delayed;
    }

    /** @param \UnitEnum|string|null $queue */
    public function reservedSize($queue = null): int
    {
        return $this->count($queue)->running;
    }

    /**
     * @param \UnitEnum|string|null $queue
     * @return ?int seconds since 1970; null: none waits, or the driver of the pipeline does not tell
     */
    public function creationTimeOfOldestPendingJob($queue = null): ?int
    {
        $oldest = $this->count($queue)->oldest;

        return $oldest === null ? null : (int) (\microtime(true) - $oldest);
    }

    /**
     * Removes the jobs that wait.
     *
     * @param \UnitEnum|string|null $queue
     */
    public function clear($queue = null): int
    {
        return $this->jobs()->clear($this->pipeline($queue));
    }

    /**
     * @param \Closure|string|object $job
     * @param mixed $data
     * @param \UnitEnum|string|null $queue
     * @return ?string the job's ID; null while a transaction holds it back
     */
    public function push($job, $data = '', $queue = null): ?string
    {
        return $this->enqueue(null, $job, $data, $queue);
    }

    /**
     * @param string $payload
     * @param \UnitEnum|string|null $queue
     * @param array<string, mixed> $options
     * @return string the job's ID
     */
    public function pushRaw($payload, $queue = null, array $options = []): string
    {
        return $this->send($payload, $queue, 0);
    }

    /**
     * @param \DateTimeInterface|\DateInterval|int $delay
     * @param \Closure|string|object $job
     * @param mixed $data
     * @param \UnitEnum|string|null $queue
     * @return ?string the job's ID; null while a transaction holds it back
     */
    public function later($delay, $job, $data = '', $queue = null): ?string
    {
        return $this->enqueue($delay, $job, $data, $queue);
    }

    /**
     * Pushes all of them, or none, but for those that a transaction holds back. They are at most
     * 65,536, with 64 MB.
     *
     * @param iterable<\Closure|string|object> $jobs
     * @param mixed $data
     * @param \UnitEnum|string|null $queue
     */
    public function bulk($jobs, $data = '', $queue = null): void
    {
        $this->together = [];
        try {
            foreach (\is_iterable($jobs) ? $jobs : [$jobs] as $job) {
                $this->enqueue($this->delayOf($job), $job, $data, $queue);
            }
            $together = $this->together;
        } finally {
            $this->together = null;
        }
        if ($together !== []) {
            // In one call, which the server takes as a whole or refuses.
            $this->jobs()->batch(...$together);
        }
    }

    /** @param \UnitEnum|string|null $queue */
    public function pop($queue = null): never
    {
        throw new \LogicException(
            'The server brings jobs to its workers, so `queue:work` has nothing to fetch: a pool of `jobs` in '
                . 'pronghorn.yaml runs them.'
        );
    }

    /** @param \DateTimeInterface|\DateInterval|int|null $delay */
    private function enqueue(mixed $delay, mixed $job, mixed $data, mixed $queue): ?string
    {
        // From Laravel 12 on, a payload tells its delay.
        $payload = $this->createPayload($job, $this->pipeline($queue), $data, $delay);
        // Called at the commit: a number of seconds counts from then on.
        $send = fn (string $payload, mixed $queue): string
            => $this->send($payload, $queue, $delay === null ? 0 : $this->secondsUntil($delay));

        return $this->enqueueUsing($job, $payload, $queue, $delay, $send);
    }

    private function send(string $payload, mixed $queue, int $delay): string
    {
        $said = \json_decode($payload, true);
        $timeout = (float) ($said['timeout'] ?? 0);
        $options = new Options(
            pipeline: $this->pipeline($queue),
            delay: \max(0, $delay),
            headers: [self::CONNECTION => (string) $this->connectionName],
            deadline: $timeout > 0 ? $timeout + self::GRACE : null,
            id: (string) Str::uuid(),
            attempts: $this->attempts($said),
        );
        $job = new NewJob($said['displayName'] ?? 'laravel', $payload, $options);
        if ($this->together !== null) {
            $this->together[] = $job;

            return $options->id;
        }

        return $this->jobs()->batch($job)[0];
    }

    /**
     * Laravel counts tries itself, and has the last word on a job: one whose worker died in its
     * last try comes once more, to be told that it has failed.
     *
     * @param mixed $said the payload
     */
    private function attempts(mixed $said): int
    {
        $tries = (int) ($said['maxTries'] ?? $this->tries);
        $isEndless = $tries <= 0 || isset($said['retryUntil']);

        return $isEndless ? self::ENDLESS : \min($tries + 1, self::ENDLESS);
    }

    /** @return \DateTimeInterface|\DateInterval|int|null */
    private function delayOf(mixed $job): mixed
    {
        if (!\is_object($job) || $job instanceof \Closure) {
            return null;
        }

        // From Laravel 13 on an attribute may say it as well.
        return \class_exists(Delay::class)
            ? $this->getAttributeValue($job, Delay::class, 'delay')
            : $job->delay ?? null;
    }

    /** @param \UnitEnum|string|null $queue */
    private function pipeline(mixed $queue): string
    {
        $name = match (true) {
            $queue instanceof \BackedEnum => (string) $queue->value,
            $queue instanceof \UnitEnum => $queue->name,
            default => (string) $queue,
        };
        $name = $name === '' ? $this->pipeline : $name;

        // From Laravel 13 on an application may say that a queue's jobs go to another one.
        return \method_exists($this, 'resolveQueue') ? $this->resolveQueue($name) : $name;
    }

    /** @param \UnitEnum|string|null $queue */
    private function count(mixed $queue): Size
    {
        return $this->jobs()->size($this->pipeline($queue));
    }

    private function jobs(): Jobs
    {
        return $this->jobs ??= ($this->connect)();
    }
}
