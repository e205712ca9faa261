<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

/** How many jobs a pipeline has. */
final class Size
{
    /**
     * @param int<0, max> $waiting for a worker
     * @param int<0, max> $delayed until their time comes
     * @param int<0, max> $running in workers
     * @param ?float $oldest seconds for which the first of those that wait has waited; null: there is none, or the
     *     driver does not tell
     */
    public function __construct(
        public readonly int $waiting,
        public readonly int $delayed,
        public readonly int $running,
        public readonly ?float $oldest = null,
    ) {
    }

    /** All of them. */
    public function total(): int
    {
        return $this->waiting + $this->delayed + $this->running;
    }
}
