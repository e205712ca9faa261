<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

/** A value of `remember()`, and until when it is fresh. After that it may be used as stale. */
final class Fresh
{
    private const UNTIL = "\0fresh";
    private const VALUE = "\0value";

    /** @param float $until seconds since 1970 */
    public static function wrap(mixed $value, float $until): mixed
    {
        return [self::UNTIL => $until, self::VALUE => $value];
    }

    /**
     * The kept form of a value that has no time of its own. It may be anything, also what somebody
     * else has sent: an array that has a key of a wrapping is wrapped, or it would be read as one.
     */
    public static function guard(mixed $value): mixed
    {
        $isLikeWrapped = \is_array($value) && (isset($value[self::UNTIL]) || isset($value[Tags::NUMBERS]));

        return $isLikeWrapped ? self::wrap($value, \INF) : $value;
    }

    /**
     * The value in what is kept, in a list; none where it is stale. Whatever was not kept by
     * `remember()` is its own value.
     *
     * @return list<mixed>
     */
    public static function of(mixed $kept): array
    {
        if (!self::isWrapped($kept)) {
            return [$kept];
        }

        return $kept[self::UNTIL] > \microtime(true) ? [$kept[self::VALUE]] : [];
    }

    /** The value of what `remember()` has kept, also a stale one. */
    public static function stale(mixed $kept): mixed
    {
        return self::isWrapped($kept) ? $kept[self::VALUE] : $kept;
    }

    private static function isWrapped(mixed $kept): bool
    {
        return \is_array($kept) && \is_float($kept[self::UNTIL] ?? null)
            && \count($kept) === 2 && \array_key_exists(self::VALUE, $kept);
    }
}
