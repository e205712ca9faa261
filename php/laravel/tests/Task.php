<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Bus\Batchable;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;

/** A job with all the options of a job. What it does is a static function, by its name. */
class Task implements ShouldQueue
{
    use Batchable;
    use Dispatchable;
    use InteractsWithQueue;
    use Queueable;

    /** @var list<string> names of those that have run, or failed for good */
    public static array $seen = [];
    /** @var array<string, \Closure(self): mixed> by name */
    public static array $does = [];

    public ?int $tries = null;
    public ?int $maxExceptions = null;
    public ?int $timeout = null;
    public bool $failOnTimeout = false;
    public ?int $retryUntil = null;
    /** @var int|list<int>|null */
    public int|array|null $backoff = null;
    /** @var list<object> */
    public array $through = [];

    public function __construct(public string $name)
    {
    }

    /** @return list<object> */
    public function middleware(): array
    {
        return $this->through;
    }

    public function handle(): void
    {
        self::$seen[] = $this->name;
        if (isset(self::$does[$this->name])) {
            (self::$does[$this->name])($this);
        }
    }

    public function failed(?\Throwable $why): void
    {
        self::$seen[] = "$this->name failed: {$why?->getMessage()}";
    }
}
