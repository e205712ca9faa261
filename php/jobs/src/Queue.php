<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

use Pronghorn\ConnectionLost;
use Pronghorn\RpcError;

/** Pushes jobs, from any PHP script, and waits for what comes of them. */
abstract class Queue
{
    /** Where jobs go whose options name no pipeline. */
    public const PIPELINE = 'default';

    /**
     * A connection with the server: its configuration has the section `jobs`, and `rpc` for scripts
     * that are no worker.
     *
     * @param ?string $address `tcp://host:port` or `unix:///path`; by default what the server put
     *     into RR_RPC, else `tcp://127.0.0.1:6001`
     * @param string $pipeline of jobs whose options name none
     * @param float $timeout seconds that a push may take, above 0
     * @throws ConnectionLost when nobody listens there
     * @throws \ValueError when the time-out makes no sense
     */
    public static function connect(
        ?string $address = null,
        string $pipeline = self::PIPELINE,
        float $timeout = 60.0,
    ): self {
        return new Internal\RpcQueue($address, $pipeline, $timeout);
    }

    /** A queue for tests: it keeps what is pushed, and sends nothing. */
    public static function fake(string $pipeline = self::PIPELINE): FakeQueue
    {
        return new FakeQueue($pipeline);
    }

    /**
     * Pushes a job. When this returns, the job is as safe as its pipeline makes it.
     *
     * @param string $name which handler it is for
     * @param mixed $payload a string travels as it is, everything else as JSON
     * @return string the job's ID
     * @throws RpcError when the server does not take it
     * @throws ConnectionLost when the server is gone or did not answer in time; it may have the job
     * @throws \JsonException when the payload can't be written as JSON
     */
    public function push(string $name, mixed $payload = '', ?Options $options = null): string
    {
        return $this->batch(new NewJob($name, $payload, $options))[0];
    }

    /**
     * Pushes a job that runs at the earliest in so many seconds.
     *
     * @param int<0, max> $seconds
     * @return string the job's ID
     * @throws RpcError when the server does not take it
     * @throws ConnectionLost when the server is gone or did not answer in time; it may have the job
     * @throws \JsonException when the payload can't be written as JSON
     */
    public function later(int $seconds, string $name, mixed $payload = '', ?Options $options = null): string
    {
        return $this->push($name, $payload, ($options ?? new Options())->with(delay: $seconds));
    }

    /**
     * Pushes several jobs in one call. Those of one pipeline are taken all together, or none of
     * them.
     *
     * @return list<string> the jobs' IDs, in their order
     * @throws RpcError when the server does not take them
     * @throws ConnectionLost when the server is gone or did not answer in time; it may have the jobs
     * @throws \JsonException when a payload can't be written as JSON
     */
    abstract public function batch(NewJob ...$jobs): array;

    /**
     * Pushes jobs, and one that runs when all of them have come to their end: done, given up,
     * cancelled or too old. A job that is not kept, as another one has its key, has the end of that
     * one. The last one's delay begins when the others have ended. Its headers `batch-jobs` and
     * `batch-failed` say how many there were, and how many were not done. The pipelines are of the
     * drivers `memory` and `embedded`.
     *
     * @return string the ID of that one
     * @throws RpcError when the server does not take them
     * @throws ConnectionLost when the server is gone or did not answer in time; it may have the jobs
     * @throws \JsonException when a payload can't be written as JSON
     * @throws \ValueError without a job to wait for
     */
    abstract public function then(NewJob $last, NewJob ...$jobs): string;

    /**
     * Waits until a job is done that was pushed with the option `result`.
     *
     * @param string $id what push() returned
     * @param float $timeout seconds, above 0
     * @param ?callable(float, string): mixed $progress gets how far the job has come, 0 to 1, and
     *     what it is at, when its handler has said something new
     * @return mixed what its handler returned, as JSON keeps it
     * @throws JobFailed when the job was given up, or is done and its result can't be kept
     * @throws NotDone when it is not done by then; sooner where the server knows no such job, its
     *     result is not kept, or the server stops. The message says which
     * @throws RpcError when the server refuses the question
     * @throws ConnectionLost when the server is gone
     * @throws \ValueError when the time-out makes no sense
     */
    abstract public function await(string $id, float $timeout = 30.0, ?callable $progress = null): mixed;

    /**
     * How many jobs a pipeline has, by what they are at. A broker's server counts its own.
     *
     * @param ?string $pipeline by default that of {@see connect()}
     * @throws RpcError when there is no such pipeline, or its broker does not say
     * @throws ConnectionLost when the server is gone
     */
    abstract public function size(?string $pipeline = null): Size;

    /**
     * Removes all jobs that wait in a pipeline of the driver `memory` or `embedded`.
     *
     * @param ?string $pipeline by default that of {@see connect()}
     * @return int how many there were
     * @throws RpcError when the server does not remove them
     * @throws ConnectionLost when the server is gone
     */
    abstract public function clear(?string $pipeline = null): int;
}
