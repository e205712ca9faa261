<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Queue\QueueManager;
use Illuminate\Support\ServiceProvider;
use Pronghorn\Laravel\Queue\Connector;

/** The configuration, the connection for queues, and the commands. */
final class PronghornServiceProvider extends ServiceProvider
{
    private const CONFIG = __DIR__ . '/../config/pronghorn.php';

    public function register(): void
    {
        $this->mergeConfigFrom(self::CONFIG, 'pronghorn');
        $this->callAfterResolving('queue', static function (QueueManager $queues): void {
            $queues->addConnector('pronghorn', static fn (): Connector => new Connector());
        });
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
