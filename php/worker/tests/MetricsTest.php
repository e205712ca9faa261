<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Metrics;

final class MetricsTest extends TestCase
{
    private const CHANGES = 1_000_000;

    private static function processorTime(): float
    {
        $usage = \getrusage();

        return $usage['ru_utime.tv_sec'] + $usage['ru_utime.tv_usec'] / 1e6;
    }

    /**
     * What is counted stays until a worker tells it: with other tests, until one of theirs.
     *
     * @runInSeparateProcess
     */
    public function testAMillionChangesTakeLessThanASecondOfTheProcessor(): void
    {
        $kept = Metrics::counter('kept_total');
        $since = self::processorTime();
        for ($change = 0; $change < self::CHANGES; $change++) {
            $kept->add();
        }
        self::assertLessThan(1.0, self::processorTime() - $since, 'of an object that is kept');

        $since = self::processorTime();
        for ($change = 0; $change < self::CHANGES; $change++) {
            Metrics::counter('named_total')->add();
        }
        self::assertLessThan(1.0, self::processorTime() - $since, 'of one that is named each time');
    }
}
