<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

/** Which keys a storage takes. */
final class Keys
{
    /**
     * Bytes of a key with its prefix. A storage takes 65,536: locks and limits need the rest, for
     * what they put before and behind a key.
     */
    public const LONGEST = 65_000;

    /**
     * A key without its prefix, as a storage has it. Names with a NUL are those of locks, limits,
     * tags and computations. A key with one, of a visitor perhaps, gets a name of its own.
     */
    public static function plain(string $key): string
    {
        return \str_contains($key, "\0") ? "nul\0" . \hash('sha256', $key) : $key;
    }

    /** A name that is no key of somebody, and may have any length. */
    public static function shortened(string $name): string
    {
        return \strlen($name) <= self::LONGEST ? $name : "long\0" . \hash('sha256', $name);
    }
}
