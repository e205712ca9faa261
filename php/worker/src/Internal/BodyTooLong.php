<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/**
 * A body that would not fit into the memory that is left: an exception in one call instead of the
 * end of the worker.
 */
final class BodyTooLong extends \RuntimeException implements Exception
{
    /** @throws self when the file is larger than what `memory_limit` leaves */
    public static function check(string $path): void
    {
        self::checkSize((int) \filesize($path));
    }

    /** @throws self when so many bytes are more than what `memory_limit` leaves */
    public static function checkSize(int $size): void
    {
        $limit = self::bytes((string) \ini_get('memory_limit'));
        $left = $limit - \memory_get_usage();
        if ($limit > 0 && $size > $left) {
            throw new self(
                "The request's body has $size bytes, of memory_limit $left are left."
                    . ' Read it from stream(), or raise the limit.'
            );
        }
    }

    /** A size as php.ini writes it; 0 or less is no limit. */
    private static function bytes(string $size): int
    {
        return (int) $size * match (\strtolower(\substr($size, -1))) {
            'g' => 1024 ** 3,
            'm' => 1024 ** 2,
            'k' => 1024,
            default => 1,
        };
    }
}
