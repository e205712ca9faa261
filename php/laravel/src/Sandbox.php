<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Routing\Route;
use Illuminate\Support\Facades\Facade;
use Pronghorn\HttpFoundation\Renewal;
use Pronghorn\Snapshot;
use Pronghorn\Statics;

/**
 * Takes an application that has answered a request back to where it was when it had booted.
 *
 * The container, every service of Laravel and of the application that it held at the boot, and
 * what these hold of such classes, get their properties back: what a request resolved, bound,
 * registered, queued or cached is gone, and so are its user, session, cookies, configuration,
 * locale, shared data and paths of views, and macros of the URL. So do static properties of these
 * classes: models boot anew, with their scopes and listeners, for the listeners of before are gone.
 * Services that a request made are made anew by the next one.
 */
final class Sandbox
{
    /** Classes whose services go back, by the beginning of their names. */
    private const OWN = ['Illuminate\\', 'App\\'];
    /** Of others, these in what those hold: who writes the log adds processors to them. */
    private const HELD = ['Monolog\\Logger'];
    /**
     * Classes whose static properties go back, beside these: of what Laravel stands on, those that
     * keep a switch for all that follows, such as the time that it is, and trusted proxies.
     */
    private const SWITCHES = [
        'Carbon\\', 'Laravel\\', 'Ramsey\\Uuid\\', 'Symfony\\Component\\HttpFoundation\\',
        'Symfony\\Component\\Mime\\', 'Symfony\\Component\\VarDumper\\',
    ];

    private readonly Connections $connections;
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
        bool $keepsConnections = true,
        private readonly array $keepStatics = [],
        ?Connections $connections = null,
    ) {
        $this->connections = $connections ?? new Connections($app, $keepsConnections);
        $databases = $this->connections->booted();
        // What facades have found is found anew in each request.
        Facade::clearResolvedInstances();
        $services = (fn (): array => $this->instances)->call($app);
        $named = \array_filter(\array_intersect_key($services, \array_flip($reset)), \is_object(...));
        $this->statics = Statics::of([...self::OWN, ...self::SWITCHES, ...$reset], $keepStatics);
        // Carbon has its clock for tests in an object.
        $objects = \array_filter($this->statics->objects(), static fn (object $object): bool
            => !$object instanceof \Closure && \str_starts_with($object::class, 'Carbon\\'));
        $this->wrappers = \stream_get_wrappers();
        $held = Held::in([$services, $this->statics->objects(), $databases], [...self::OWN, ...self::HELD, ...$reset]);
        self::compile($held);
        $all = [$app, ...\array_values($named), ...$databases, ...$held, ...\array_values($objects)];
        $this->booted = Snapshot::of(...$all);
    }

    /**
     * Or each request would compile the routes that it asks, as it finds them as they are now.
     *
     * @param list<object> $held
     */
    private static function compile(array $held): void
    {
        $request = Request::create('/');
        foreach ($held as $route) {
            try {
                $route instanceof Route && $route->matches($request, false);
            } catch (\Throwable) {
                // The request that asks it is told.
            }
        }
    }

    /** A new one, of the application as it is by now. */
    public function again(): self
    {
        return new self($this->app, $this->reset, keepStatics: $this->keepStatics, connections: $this->connections);
    }

    /** Closes connections to databases, of which processes can't share one. */
    public function disconnect(): void
    {
        $this->connections->closeAll();
    }

    /** After a request, and once more before the next one. */
    public function restore(): void
    {
        Renewal::settle($this->round(...));
        $this->connections->handOver();
    }

    /** @return bool whether anything had changed */
    private function round(): bool
    {
        $this->connections->settle();
        $this->log();
        $hasChanged = $this->booted->restore();
        Facade::clearResolvedInstances();
        $hasChanged = $this->statics->restore() || $hasChanged;
        $this->wrappers();

        return $hasChanged;
    }

    /** SerializableClosure registers one, once: it has forgotten that by now. */
    private function wrappers(): void
    {
        \array_map('stream_wrapper_unregister', \array_diff(\stream_get_wrappers(), $this->wrappers));
    }

    /** What a request has added to all of its records. */
    private function log(): void
    {
        $log = Held::made($this->app, 'log');
        if ($log === null) {
            return;
        }
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
