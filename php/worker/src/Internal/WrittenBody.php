<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** A body that a function writes, piece by piece. */
final class WrittenBody implements \Stringable
{
    /** @param \Closure(\Closure(string): void): mixed $write */
    public function __construct(public readonly \Closure $write)
    {
    }

    public function __toString(): string
    {
        $whole = '';
        ($this->write)(static function (string $piece) use (&$whole): void {
            $whole .= $piece;
        });

        return $whole;
    }
}
