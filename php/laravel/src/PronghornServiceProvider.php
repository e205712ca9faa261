<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Support\ServiceProvider;

/** The commands and the configuration. */
final class PronghornServiceProvider extends ServiceProvider
{
    private const CONFIG = __DIR__ . '/../config/pronghorn.php';

    public function register(): void
    {
        $this->mergeConfigFrom(self::CONFIG, 'pronghorn');
    }

    public function boot(): void
    {
        if ($this->app->runningInConsole()) {
            $this->publishes([self::CONFIG => $this->app->configPath('pronghorn.php')], 'pronghorn-config');
            $this->commands([
                Console\InstallCommand::class,
                Console\ServeCommand::class,
                Console\ReloadCommand::class,
                Console\StatusCommand::class,
            ]);
        }
    }
}
