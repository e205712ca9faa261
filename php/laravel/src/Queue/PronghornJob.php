<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Container\Container;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Queue\Jobs\Job;
use Pronghorn\DeadlineExceeded;
use Pronghorn\Job as Asked;

/** A job that the server has brought, as Laravel knows it. */
final class PronghornJob extends Job implements JobContract
{
    /** Why Laravel releases the job, if its class did not. */
    private ?\Throwable $thrown = null;

    public function __construct(Container $container, private readonly Asked $asked, string $connection)
    {
        $this->container = $container;
        $this->connectionName = $connection;
        $this->queue = $asked->pipeline;
    }

    public function getJobId(): string
    {
        return $this->asked->id;
    }

    public function getRawBody(): string
    {
        return $this->asked->body;
    }

    public function attempts(): int
    {
        return $this->asked->attempt;
    }

    public function fire(): void
    {
        try {
            parent::fire();
        } catch (DeadlineExceeded) {
            // The server has counted the attempt, and brings the job again if it has another one.
            $this->released = true;
        } catch (\Throwable $thrown) {
            $this->thrown = $thrown;
            throw $thrown;
        }
    }

    /** @param int $delay seconds */
    public function release($delay = 0): void
    {
        parent::release($delay);
        // Laravel lets a job say so twice; for the server the first word counts.
        if (!$this->asked->isDecided()) {
            $this->asked->retryIn(\max(0, $delay), $this->thrown ?? '');
        }
    }

    /** @param ?\Throwable $e */
    public function fail($e = null): void
    {
        try {
            parent::fail($e);
        } finally {
            // Also if there is no table of failed jobs, or the job's own failed() throws.
            if (!$this->asked->isDecided()) {
                $this->asked->fail($e ?? '');
            }
        }
    }
}
