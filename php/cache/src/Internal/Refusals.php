<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

use Pronghorn\Cache\Store;

/**
 * Says in the log what a storage has not taken although nobody asks whether it has: once in a
 * process for all keys that begin alike. Neither values nor whole keys are told: both may be
 * secret.
 */
final class Refusals
{
    /** More begin by who visits, and not by what they are. */
    private const MOST = 16;
    /** Signs behind which the rest of a key may be anything. */
    private const ENDS = ":/._\0";
    private const LONGEST_PREFIX = 64;

    /** @var array<string, true> by beginning of keys */
    private static array $told = [];

    /** @param string $own what all keys of this cache begin with */
    public static function tell(Store $store, string $own, string $key, mixed $value): void
    {
        $prefix = self::prefix($own, $key);
        if (isset(self::$told[$prefix]) || \count(self::$told) === self::MOST) {
            return;
        }
        self::$told[$prefix] = true;
        $length = self::length($value);
        $most = \method_exists($store, 'longest') ? $store->longest() : null;
        $where = $prefix === '' ? 'a key without a prefix' : "a key with the prefix `$prefix`";
        $why = match (true) {
            $most === null => 'its storage does not take it',
            $length + \strlen($key) < $most => 'its storage has no room',
            default => "an entry of its storage has at most $most, with its key: give the storage a larger max_size",
        };
        $what = "Cache::remember() computes each time what $where has: it has $length bytes, and $why";
        \error_log("PHP Warning:  $what");
    }

    private static function prefix(string $own, string $key): string
    {
        $rest = \substr($key, \strlen($own), self::LONGEST_PREFIX);
        $until = \strcspn($rest, self::ENDS);
        $prefix = $own . ($until < \strlen($rest) ? \substr($rest, 0, $until + 1) : '');

        return \addcslashes(\substr($prefix, 0, self::LONGEST_PREFIX), "\0..\37`\177..\377");
    }

    /** Bytes that it has where it is kept. */
    private static function length(mixed $value): int
    {
        $bytes = \function_exists('igbinary_serialize') ? \igbinary_serialize($value) : \serialize($value);

        return \strlen((string) $bytes);
    }
}
