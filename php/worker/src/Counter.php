<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Counted;

/** A number that only grows: {@see Metrics::counter()}. */
final class Counter extends Counted
{
    private float $sum = 0.0;

    /** @throws \InvalidArgumentException when it would fall */
    public function add(int|float $by = 1): void
    {
        if (!($by >= 0 && $by < \INF)) {
            throw new \InvalidArgumentException("A counter only grows: $by can't be added.");
        }
        $this->sum += $by;
        $this->isPending || $this->changed();
    }

    protected function take(): array
    {
        $change = ['type' => 'counter', 'add' => $this->sum];
        $this->sum = 0.0;

        return $change;
    }
}
