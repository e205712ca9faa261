<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Job;

/** A job out of a queue. */
final class JobExchange extends Exchange
{
    /** @param int $startedAt microseconds since the Unix epoch */
    public function __construct(
        Transport $transport,
        int $id,
        ?int $deadline,
        private readonly int $startedAt,
        public readonly Job $job,
        /** Somebody waits for what the handler returns. */
        public readonly bool $wantsResult,
    ) {
        parent::__construct($transport, $id, $deadline);
    }

    public function kind(): Kind
    {
        return Kind::Job;
    }

    public function startedAt(): int
    {
        return $this->startedAt;
    }

    public function describe(): string
    {
        return "job {$this->job->name} ({$this->job->id})";
    }

    public function beginReply(): void
    {
    }

    /** A job that ends its worker's call is not done. */
    public function endByExit(string $printed, int $flags): bool
    {
        return false;
    }
}
