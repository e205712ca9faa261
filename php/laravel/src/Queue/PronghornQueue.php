<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Contracts\Queue\Queue as QueueContract;
use Illuminate\Queue\Queue;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue as Jobs;

/** Laravel's queue over the server's: a queue of Laravel is a pipeline of the server. */
final class PronghornQueue extends Queue implements QueueContract
{
    private ?Jobs $jobs = null;

    /** @param \Closure(): Jobs $connect */
    public function __construct(
        private readonly \Closure $connect,
        private readonly string $pipeline,
        bool $afterCommit = false,
    ) {
        $this->dispatchAfterCommit = $afterCommit;
    }

    /** @param ?string $queue */
    public function size($queue = null): never
    {
        throw new \LogicException('The server counts its jobs: `pronghorn jobs` shows them.');
    }

    /**
     * @param \Closure|string|object $job
     * @param mixed $data
     * @param ?string $queue
     * @return string the job's ID
     */
    public function push($job, $data = '', $queue = null): string
    {
        return $this->later(0, $job, $data, $queue);
    }

    /**
     * @param string $payload
     * @param ?string $queue
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
     * @param ?string $queue
     * @return ?string the job's ID; null while a transaction holds it back
     */
    public function later($delay, $job, $data = '', $queue = null): ?string
    {
        $payload = $this->createPayload($job, $queue ?? $this->pipeline, $data);
        $seconds = $this->secondsUntil($delay);
        $send = fn (string $payload, ?string $queue): string => $this->send($payload, $queue, $seconds);

        return $this->enqueueUsing($job, $payload, $queue, $delay, $send);
    }

    /** @param ?string $queue */
    public function pop($queue = null): never
    {
        throw new \LogicException(
            'The server brings jobs to its workers, so `queue:work` has nothing to fetch: a pool of `jobs` in '
                . 'pronghorn.yaml runs them.'
        );
    }

    private function send(string $payload, ?string $queue, int $delay): string
    {
        $said = \json_decode($payload, true);
        $timeout = (float) ($said['timeout'] ?? 0);
        $options = new Options(
            pipeline: $queue ?? $this->pipeline,
            delay: \max(0, $delay),
            deadline: $timeout > 0 ? $timeout : null,
        );
        $this->jobs ??= ($this->connect)();

        return $this->jobs->push($said['displayName'] ?? 'laravel', $payload, $options);
    }
}
