<?php

declare(strict_types=1);

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Log;

final class Greet implements ShouldQueue
{
    use Dispatchable;
    use InteractsWithQueue;

    public function __construct(private readonly string $name)
    {
    }

    public function handle(): void
    {
        Cache::put('greeted', $this->name, 600);
        Log::info('Hello, {name}!', ['name' => $this->name]);
    }
}
