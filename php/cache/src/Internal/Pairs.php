<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

/** Values by keys that are strings, also where they are numbers. */
final class Pairs
{
    /**
     * @param array<mixed> $pairs whose keys were strings
     * @return iterable<string, mixed> the array itself where all of its keys still are
     */
    public static function of(array $pairs): iterable
    {
        foreach ($pairs as $key => $_) {
            if (\is_int($key)) {
                return self::each($pairs);
            }
        }

        return $pairs;
    }

    /**
     * @param array<mixed> $pairs
     * @return \Generator<string, mixed>
     */
    private static function each(array $pairs): \Generator
    {
        foreach ($pairs as $key => $value) {
            yield (string) $key => $value;
        }
    }
}
