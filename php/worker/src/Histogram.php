<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Counted;

/** How often something had which size: {@see Metrics::histogram()}. */
final class Histogram extends Counted
{
    /** Seconds of something that a person waits for. */
    public const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

    /** @var list<int|float> */
    private array $bounds = self::BUCKETS;
    /** @var list<int> one more than there are bounds */
    private array $counts = [];
    private float $sum = 0.0;

    /** @throws \InvalidArgumentException for what is no finite number */
    public function observe(int|float $value): void
    {
        $this->sum += self::finite($value);
        $bucket = 0;
        foreach ($this->bounds as $bound) {
            if ($value <= $bound) {
                break;
            }
            ++$bucket;
        }
        ++$this->counts[$bucket];
        $this->isPending || $this->changed();
    }

    /**
     * Calls a function, and observes how many seconds it took, however it ends.
     *
     * @template T
     * @param callable(): T $work
     * @return T
     */
    public function time(callable $work): mixed
    {
        $start = \hrtime(true);
        try {
            return $work();
        } finally {
            $this->observe((\hrtime(true) - $start) / 1e9);
        }
    }

    protected function begin(array $buckets): void
    {
        if ($buckets === [] || !\array_is_list($buckets)) {
            throw new \InvalidArgumentException('A histogram takes a list of bounds, and not an empty one.');
        }
        $last = -\INF;
        foreach ($buckets as $bound) {
            if (self::finite($bound) <= $last) {
                throw new \InvalidArgumentException("The bounds of a histogram ascend: $bound is behind $last.");
            }
            $last = $bound;
        }
        $this->bounds = $buckets;
        $this->counts = \array_fill(0, \count($buckets) + 1, 0);
    }

    protected function take(): array
    {
        $change = [
            'type' => 'histogram',
            'buckets' => $this->bounds,
            'counts' => $this->counts,
            'sum' => $this->sum,
        ];
        $this->counts = \array_fill(0, \count($this->bounds) + 1, 0);
        $this->sum = 0.0;

        return $change;
    }
}
