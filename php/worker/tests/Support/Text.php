<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

/** Something that is no string and can become one. */
final class Text implements \Stringable
{
    public function __construct(private readonly string $text)
    {
    }

    public function __toString(): string
    {
        return $this->text;
    }
}
