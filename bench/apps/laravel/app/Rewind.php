<?php

declare(strict_types=1);

namespace App;

use Illuminate\Foundation\Application;
use Illuminate\Support\Facades\Facade;
use Pronghorn\Snapshot;

/**
 * Takes an application that has answered a request back to where it was when it had booted: what
 * the request resolved, bound, registered, queued or cached is gone, users and sessions with it.
 *
 * It sets back the properties of the container and of every object of Laravel that the container
 * held, not those of objects deeper inside. So what refers to one request (a guard, the session,
 * the redirector) must not be resolved before.
 */
final class Rewind
{
    private readonly Snapshot $booted;

    public function __construct(private readonly Application $app)
    {
        $this->booted = Snapshot::of($app, ...\array_filter(
            (fn (): array => $this->instances)->call($app),
            static fn (mixed $it): bool => \is_object($it) && \preg_match('/^(Illuminate|App)\\\\/', $it::class) === 1,
        ));
    }

    public function __invoke(): void
    {
        try {
            // It keeps its controller, with all that was given to its constructor.
            $this->app->make('router')->current()?->flushController();
            foreach ($this->app->make('db')->getConnections() as $connection) {
                $connection->rollBack(0); // a transaction that was left open
            }
            $this->booted->restore();
            Facade::clearResolvedInstances();
        } catch (\Throwable $failed) {
            \error_log("The application can't be taken back, so this process ends: $failed");
            exit(1);
        }
    }
}
