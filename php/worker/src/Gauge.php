<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Counted;

/** A number that goes up and down: {@see Metrics::gauge()}. */
final class Gauge extends Counted
{
    private ?float $value = null;
    private float $sum = 0.0;

    /** @throws \InvalidArgumentException for what is no finite number */
    public function set(int|float $value): void
    {
        $this->value = self::finite($value);
        $this->sum = 0.0;
        $this->isPending || $this->changed();
    }

    /** @throws \InvalidArgumentException for what is no finite number */
    public function add(int|float $by = 1): void
    {
        $this->sum += self::finite($by);
        $this->isPending || $this->changed();
    }

    /** @throws \InvalidArgumentException for what is no finite number */
    public function sub(int|float $by = 1): void
    {
        $this->add(-$by);
    }

    protected function take(): array
    {
        $change = ['type' => 'gauge', 'set' => $this->value, 'add' => $this->sum];
        $this->value = null;
        $this->sum = 0.0;

        return $change;
    }
}
