<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support\Kept;

final class Lazy
{
    public string $made;
    public string $never;
    public int $calls = 0;

    public function __construct()
    {
        unset($this->made);
    }

    public function __get(string $name): string
    {
        $this->calls++;

        return $this->made = "$name, made";
    }
}
