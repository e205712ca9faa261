<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Growth;

final class GrowthTest extends TestCase
{
    /** @var list<mixed> */
    private array $kept = [];

    /**
     * How often it was told, of which route, in so many calls of each.
     *
     * @param array<string, \Closure(int): void> $routes
     * @return list<array{string, int}>
     */
    private function told(array $routes, int $calls): array
    {
        $growth = new Growth();
        $told = [];
        for ($call = 0; $call < $calls; $call++) {
            foreach ($routes as $route => $work) {
                $work($call);
                $bytes = $growth->ended($route);
                $bytes === null || $told[] = [$route, $bytes];
            }
        }

        return $told;
    }

    public function testARouteThatKeepsSomethingWithEachCallIsFound(): void
    {
        $leaks = function (int $call): void {
            $this->kept[] = \str_repeat("$call", 1000);
        };
        $told = $this->told(['GET /clean' => static fn (): string => \uniqid(), 'GET /leaks' => $leaks], 200);
        self::assertNotSame([], $told);
        foreach ($told as [$route, $bytes]) {
            self::assertSame('GET /leaks', $route);
            self::assertGreaterThan(1000, $bytes);
            self::assertLessThan(6000, $bytes);
        }
    }

    public function testGarbageInCyclesIsNone(): void
    {
        $cycle = static function (): void {
            $one = new \stdClass();
            $one->self = $one;
            $one->text = \str_repeat('x', 1000) . \uniqid();
        };
        self::assertSame([], $this->told(['GET /cycle' => $cycle, 'GET /other' => $cycle], 300));
    }

    public function testCachesThatAreFilledAreNone(): void
    {
        $fill = function (int $call): void {
            $this->kept[\min($call, 50)] ??= \str_repeat("$call", 1000);
        };
        self::assertSame([], $this->told(['GET /fill' => $fill], 300));
    }

    public function testRoutesAreBounded(): void
    {
        $growth = new Growth();
        $before = \memory_get_usage();
        for ($route = 0; $route < 10_000; $route++) {
            $growth->ended("GET /$route");
        }
        self::assertLessThan(100_000, \memory_get_usage() - $before);
    }
}
