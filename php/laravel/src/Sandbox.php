<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\Facades\Facade;
use Pronghorn\Snapshot;
use Pronghorn\Statics;

/**
 * Takes an application that has answered a request back to where it was when it had booted.
 *
 * The container and every service of Laravel and of the application that it held at the boot get
 * their properties back: what a request resolved, bound, registered, queued or cached is gone, and
 * so are its user, session, cookies, configuration, locale, shared data of views, and macros of
 * the URL. So do static properties of these classes: models boot anew, with their scopes and
 * listeners, for the listeners of before are gone. Services that a request made are made anew by
 * the next one. Deeper places that a request is known to change are set back by name.
 */
final class Sandbox
{
    /** Classes whose services go back, by the beginning of their names. */
    private const OWN = ['Illuminate\\', 'App\\'];
    /**
     * Classes whose static properties go back, beside these: of what Laravel stands on, those that
     * keep a switch for all that follows, such as the time that it is, and trusted proxies.
     */
    private const SWITCHES = [
        'Carbon\\', 'Laravel\\', 'Ramsey\\Uuid\\', 'Symfony\\Component\\HttpFoundation\\',
        'Symfony\\Component\\Mime\\', 'Symfony\\Component\\VarDumper\\',
    ];

    private readonly Snapshot $booted;
    private readonly Statics $statics;
    /** @var list<string> */
    private readonly array $wrappers;

    /**
     * @param list<string> $reset more that goes back: names in the container, or beginnings of class
     *     names
     * @param list<string> $keepStatics beginnings of the names of classes whose static properties
     *     stay
     */
    public function __construct(
        private readonly Application $app,
        private readonly array $reset = [],
        private readonly bool $keepsConnections = true,
        private readonly array $keepStatics = [],
    ) {
        $services = (fn (): array => $this->instances)->call($app);
        $goesBack = static function (mixed $service, string $name) use ($reset): bool {
            if (!\is_object($service)) {
                return false;
            }
            $begins = static fn (string $prefix): bool => \str_starts_with($service::class, $prefix);

            return \in_array($name, $reset, true) || \array_filter([...self::OWN, ...$reset], $begins) !== [];
        };
        $services = \array_filter($services, $goesBack, \ARRAY_FILTER_USE_BOTH);
        $this->statics = Statics::of([...self::OWN, ...self::SWITCHES, ...$reset], $keepStatics);
        // Carbon has its clock for tests in an object.
        $objects = \array_filter($this->statics->objects(), static fn (object $object): bool
            => !$object instanceof \Closure && \str_starts_with($object::class, 'Carbon\\'));
        $this->wrappers = \stream_get_wrappers();
        $this->booted = Snapshot::of($app, ...\array_values($services), ...\array_values($objects));
    }

    /** A new one, of the application as it is by now. */
    public function again(): self
    {
        return new self($this->app, $this->reset, $this->keepsConnections, $this->keepStatics);
    }

    /**
     * After a request. If that is not possible, this process ends: the next visitor must not find
     * what this one has left.
     */
    public function restore(): void
    {
        try {
            $this->router();
            $this->databases();
            $this->log();
            $this->booted->restore();
            $this->statics->restore();
            $this->wrappers();
            Facade::clearResolvedInstances();
        } catch (\Throwable $failed) {
            \error_log("The application can't be taken back, so this process ends: $failed");
            exit(1);
        }
    }

    /** SerializableClosure registers one, once: it has forgotten that by now. */
    private function wrappers(): void
    {
        \array_map('stream_wrapper_unregister', \array_diff(\stream_get_wrappers(), $this->wrappers));
    }

    /** A route keeps its controller, with all that was given to its constructor. */
    private function router(): void
    {
        $route = $this->app->make('router')->current();
        if ($route !== null && \method_exists($route, 'flushController')) {
            $route->flushController();
        }
    }

    /** A transaction that was left open, and the queries that were logged. */
    private function databases(): void
    {
        if (!$this->app->resolved('db')) {
            return;
        }
        $databases = $this->app->make('db');
        foreach ($databases->getConnections() as $name => $connection) {
            if ($connection->transactionLevel() > 0) {
                $connection->rollBack(0);
            }
            $connection->disableQueryLog();
            $connection->flushQueryLog();
            $this->keepsConnections || $databases->purge($name);
        }
    }

    /** What a request has added to all of its records. */
    private function log(): void
    {
        if (!$this->app->resolved('log')) {
            return;
        }
        $log = $this->app->make('log');
        if (\method_exists($log, 'flushSharedContext')) {
            $log->flushSharedContext();
        }
        foreach (\method_exists($log, 'getChannels') ? $log->getChannels() : [] as $channel) {
            if (\method_exists($channel, 'withoutContext')) {
                $channel->withoutContext();
            }
        }
    }
}
