<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

/** How a job is to run. What is null is as its pipeline has it. */
final class Options
{
    /**
     * @param ?string $pipeline where it waits
     * @param ?positive-int $priority lower goes first
     * @param int<0, max> $delay seconds until it may run
     * @param array<string, string|list<string>> $headers for the handler
     * @param bool $autoAck it counts as done as soon as a worker gets it
     * @param ?string $pool of `jobs.pools`: whose workers run it
     * @param ?float $deadline seconds that one attempt may take
     * @param ?float $expires seconds after which it does not run any more if it has not begun
     * @param ?string $unique as long as a job with this key waits or runs, another one is not
     *     kept
     * @param ?float $uniqueFor seconds since the push for which the key counts, also when the job
     *     is done by then; null: until it is done
     * @param bool $result what the handler returns is kept for {@see Queue::await()}
     * @param ?string $id of your own, unique among the jobs that there are; by default a random one
     * @param ?positive-int $attempts how often it is tried, in place of `retry.max` of its pipeline
     */
    public function __construct(
        public readonly ?string $pipeline = null,
        public readonly ?int $priority = null,
        public readonly int $delay = 0,
        public readonly array $headers = [],
        public readonly bool $autoAck = false,
        public readonly ?string $pool = null,
        public readonly ?float $deadline = null,
        public readonly ?float $expires = null,
        public readonly ?string $unique = null,
        public readonly ?float $uniqueFor = null,
        public readonly bool $result = false,
        public readonly ?string $id = null,
        public readonly ?int $attempts = null,
    ) {
    }

    /** The same with some of them changed, by name: `$options->with(delay: 5)`. */
    public function with(mixed ...$options): self
    {
        return new self(...($options + \get_object_vars($this)));
    }
}
