<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Cache\CacheManager;
use Illuminate\Contracts\Cache\Repository;
use Illuminate\Contracts\Container\Container;
use Illuminate\Log\LogManager;
use Illuminate\Queue\QueueManager;
use Illuminate\Session\CacheBasedSessionHandler;
use Illuminate\Session\SessionManager;
use Illuminate\Support\ServiceProvider;
use Monolog\Logger;
use Pronghorn\Laravel\Cache\PronghornStore;
use Pronghorn\Laravel\Queue\Connector;
use Pronghorn\Log;
use Psr\Log\LoggerInterface;

/** The configuration, the drivers `pronghorn` for queues, caches, sessions and logs, and the commands. */
final class PronghornServiceProvider extends ServiceProvider
{
    private const CONFIG = __DIR__ . '/../config/pronghorn.php';

    public function register(): void
    {
        $this->mergeConfigFrom(self::CONFIG, 'pronghorn');
        $this->callAfterResolving('queue', static function (QueueManager $queues): void {
            $queues->addConnector('pronghorn', static fn (): Connector => new Connector());
        });
        // Laravel binds these functions to its managers, so they are not static.
        $this->callAfterResolving('cache', static function (CacheManager $caches): void {
            $caches->extend('pronghorn', fn (Container $app, array $config): Repository => $caches->repository(
                PronghornStore::of($config + ['prefix' => $app['config']['cache.prefix']]),
                $config,
            ));
        });
        $this->callAfterResolving('session', static function (SessionManager $sessions): void {
            $sessions->extend('pronghorn', static function (Container $app): CacheBasedSessionHandler {
                $store = $app['cache']->store($app['config']['session.store'] ?? 'pronghorn');

                return new CacheBasedSessionHandler(clone $store, (int) $app['config']['session.lifetime']);
            });
        });
        $this->callAfterResolving('log', static function (LogManager $logs): void {
            // phpcs:ignore Generic.CodeAnalysis.UnusedFunctionParameter -- it is Laravel that calls
            $logs->extend('pronghorn', fn (Container $app, array $config): LoggerInterface => new Logger(
                $config['name'] ?? 'pronghorn',
                [new LogHandler(new Log(), $config['level'] ?? 'debug')],
            ));
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
