<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

/**
 * A value that `Cache::remember()` was asked for, and that is not there.
 *
 * @internal
 */
final class Wanted
{
    /** @param iterable<string> $tags */
    public function __construct(
        public readonly string $name,
        public readonly float $ttl,
        public readonly float $stale,
        public readonly \Closure $compute,
        public readonly iterable $tags,
        public readonly Computing $computing,
    ) {
    }
}
