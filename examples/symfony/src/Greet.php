<?php

declare(strict_types=1);

namespace App;

/** Somebody is to be greeted. */
final class Greet
{
    public function __construct(public readonly string $name)
    {
    }
}
