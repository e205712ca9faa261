<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Finds routes whose calls leave memory behind, each of them and not only the first ones. What
 * holds it is not asked: it may be a closure, a list in an object of an extension, a log in memory.
 *
 * Each call is counted, by two looks at a number. What a route seems to leave may be garbage in
 * cycles that PHP collects later, so a suspect is counted once more, with a collection behind each
 * call.
 */
final class Growth
{
    /** Calls of a route that may fill caches. */
    private const FIRST = 16;
    /** Calls that make a suspect, and calls that prove it. */
    private const COUNTED = 32;
    private const PROVING = 16;
    /** A suspect that nobody asks for is forgotten: a collection takes milliseconds. */
    private const MOST_COLLECTIONS = 200;
    /** Bytes for each call. It takes 100,000 calls of that to fill 10 MB. */
    private const LEAST = 100;
    /** A path with a number in it is a route of its own here. */
    private const MOST_ROUTES = 200;

    /** @var array<string, array{int, int}> calls, and bytes left by those behind the first */
    private array $routes = [];
    private ?string $suspect = null;
    /** @var list<int> what each call of the suspect has left */
    private array $proof = [];
    private int $collections = 0;
    private int $before = 0;

    /** @return ?int bytes that each call of this route leaves: once, when that is certain */
    public function ended(string $route): ?int
    {
        if ($this->suspect !== null) {
            \gc_collect_cycles();
            $this->collections++;
        }
        $left = \memory_get_usage() - $this->before;
        $found = null;
        if ($this->suspect === null) {
            $this->count($route, $left);
        } else {
            $found = $this->prove($route, $left);
        }
        // What is written down here is not the application's.
        $this->before = \memory_get_usage();

        return $found;
    }

    private function count(string $route, int $left): void
    {
        if (!isset($this->routes[$route])) {
            if (\count($this->routes) < self::MOST_ROUTES) {
                $this->routes[$route] = [1, 0];
            }

            return;
        }
        [$calls, $sum] = $this->routes[$route];
        $this->routes[$route] = [$calls + 1, $calls < self::FIRST ? 0 : $sum + $left];
        if ($calls + 1 === self::FIRST + self::COUNTED) {
            if ($sum >= self::COUNTED * self::LEAST) {
                [$this->suspect, $this->proof, $this->collections] = [$route, [], 0];
                // The next call begins without what others have left to be collected.
                \gc_collect_cycles();
            }
            unset($this->routes[$route]);
        }
    }

    private function prove(string $route, int $left): ?int
    {
        if ($route === $this->suspect) {
            $this->proof[] = $left;
        }
        if (\count($this->proof) < self::PROVING && $this->collections < self::MOST_COLLECTIONS) {
            return null;
        }
        // It is suspected once in the life of a worker.
        $this->routes[$this->suspect] = [self::FIRST + self::COUNTED, 0];
        $this->suspect = null;
        if (\count($this->proof) < self::PROVING) {
            return null;
        }
        // In both halves: a cache that was filled meanwhile is none.
        [$first, $second] = \array_map('array_sum', \array_chunk($this->proof, \intdiv(self::PROVING, 2)));

        return \min($first, $second) >= self::LEAST * self::PROVING / 2
            ? \intdiv($first + $second, self::PROVING)
            : null;
    }
}
