<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

/**
 * Counts in each part of a time span that ends now. A part counts as if all its calls came at its
 * end: there are never too many in such a span, and a place is free again at most one part late.
 */
final class Window
{
    /** An entry of a storage has a kilobyte with them. */
    private const PARTS = 50;

    /** Seconds of one part. */
    public readonly float $part;

    public function __construct(private readonly int $limit, float $seconds)
    {
        $this->part = $seconds / self::PARTS;
    }

    /**
     * @param mixed $kept what this has answered before; anything else is nothing
     * @param float $now seconds since 1970
     * @return array{float, string} seconds to wait; what is kept if they are 0
     */
    public function take(mixed $kept, float $now): array
    {
        $part = (int) \floor($now / $this->part);
        $counts = [];
        // As text: not all who share a storage may have the same serializer.
        foreach (\is_string($kept) ? (array) \json_decode($kept, true) : [] as $one => $count) {
            // A part far ahead was counted before a clock was set back.
            if (\abs((int) $one - $part) <= self::PARTS) {
                $counts[(int) $one] = (int) $count;
            }
        }
        if (\array_sum($counts) >= $this->limit) {
            return [\max((\min(\array_keys($counts)) + self::PARTS + 1) * $this->part - $now, 0.001), ''];
        }
        $counts[$part] = ($counts[$part] ?? 0) + 1;

        return [0.0, (string) \json_encode($counts)];
    }
}
