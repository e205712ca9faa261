<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;

/** What an application gives as the pieces of a streamed body. */
final class Pieces
{
    /** @param iterable<mixed> $pieces */
    public static function iterator(iterable $pieces): \Iterator
    {
        while ($pieces instanceof \IteratorAggregate) {
            $pieces = $pieces->getIterator();
        }

        return \is_array($pieces) ? new \ArrayIterator($pieces) : $pieces;
    }

    public static function text(mixed $piece): string
    {
        if (\is_string($piece) || \is_int($piece) || \is_float($piece) || $piece instanceof \Stringable) {
            return (string) $piece;
        }

        $type = \get_debug_type($piece);
        throw new \TypeError("A piece of a streamed body is of type $type, a string was due.");
    }

    /**
     * Tells a generator that nobody reads on. Whatever it does then, its pieces are not asked for
     * any more.
     */
    public static function abandon(\Iterator $pieces, ClientGone $gone): void
    {
        if ($pieces instanceof \Generator) {
            try {
                $pieces->throw($gone);
            } catch (ClientGone) {
            }
        }
    }
}
