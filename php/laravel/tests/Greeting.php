<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;

/** A job whose name says what becomes of it. */
final class Greeting implements ShouldQueue
{
    use InteractsWithQueue;

    /** @var list<string> */
    public static array $done = [];

    public int $timeout = 30;

    public function __construct(public string $name)
    {
    }

    public function handle(): void
    {
        match ($this->name) {
            'throws' => throw new \DomainException('on purpose'),
            'release' => $this->release(90),
            'fail' => $this->fail(new \DomainException('of no use')),
            default => self::$done[] = $this->name,
        };
    }
}
