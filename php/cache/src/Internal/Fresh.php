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
        return \is_array($kept) && \is_float($kept[self::UNTIL] ?? null);
    }
}
