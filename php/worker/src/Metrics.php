<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Counted;

/**
 * Metrics of the application, which the server shows with its own (`metrics.address`). A change
 * costs no message: this process sums them up, and the sums go to the server behind the reply of
 * the call that made them.
 *
 * The same name and labels give the same object, which may be kept. Each combination of labels is a
 * series of its own that stays until the server ends: no label may hold what has no end, as the
 * number of a user.
 *
 *     Metrics::counter('orders_total', ['shop' => 'eu'], 'Orders that were placed.')->add();
 */
final class Metrics
{
    private function __construct()
    {
    }

    /**
     * Something that only grows; its name ends in `_total` by custom.
     *
     * @param array<string, string|\Stringable|int|float|bool> $labels
     * @param string $help what it counts; the first that the server hears counts
     * @throws \InvalidArgumentException when a name can't be one
     */
    public static function counter(string $name, array $labels = [], string $help = ''): Counter
    {
        return Counted::series(Counter::class, $name, $labels, $help);
    }

    /**
     * Something that goes up and down. All processes change the same one: what was set last counts.
     *
     * @param array<string, string|\Stringable|int|float|bool> $labels
     * @throws \InvalidArgumentException when a name can't be one
     */
    public static function gauge(string $name, array $labels = [], string $help = ''): Gauge
    {
        return Counted::series(Gauge::class, $name, $labels, $help);
    }

    /**
     * How often something had which size, as durations in seconds.
     *
     * @param array<string, string|\Stringable|int|float|bool> $labels
     * @param list<int|float> $buckets their upper bounds, ascending; by default those of a duration
     *     that a person waits for, from 5 ms to 10 s
     * @throws \InvalidArgumentException when a name or the buckets can't be that
     */
    public static function histogram(
        string $name,
        array $labels = [],
        string $help = '',
        array $buckets = Histogram::BUCKETS,
    ): Histogram {
        return Counted::series(Histogram::class, $name, $labels, $help, $buckets);
    }
}
