<?php

declare(strict_types=1);

namespace App;

use Illuminate\Console\Scheduling\Schedule;
use Illuminate\Foundation\Console\Kernel;
use Illuminate\Support\Facades\Cache;

final class ConsoleKernel extends Kernel
{
    protected function schedule(Schedule $schedule): void
    {
        $schedule->call(static fn () => Cache::increment('minutes'))->everyMinute();
    }
}
