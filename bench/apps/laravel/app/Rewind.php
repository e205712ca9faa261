<?php

declare(strict_types=1);

namespace App;

use Illuminate\Foundation\Application;
use Illuminate\Support\Facades\Facade;

/**
 * Takes an application that has answered a request back to where it was when it had booted: what the request resolved,
 * bound, registered, queued or cached is gone, users and sessions with it.
 *
 * It sets back the properties of the container and of every object of Laravel that the container held, not those of
 * objects deeper inside. So what refers to one request (a guard, the session, the redirector) must not be resolved
 * before.
 */
final class Rewind
{
    /** @var list<\Closure(): void> */
    private array $steps = [];

    public function __construct(private readonly Application $app)
    {
        $this->keep($app);
        foreach ((fn (): array => $this->instances)->call($app) as $object) {
            if (\is_object($object) && \preg_match('/^(Illuminate|App)\\\\/', $object::class) && $object !== $app) {
                $this->keep($object);
            }
        }
    }

    public function __invoke(): void
    {
        try {
            // It keeps its controller, with all that was given to its constructor.
            $this->app->make('router')->current()?->flushController();
            foreach ($this->app->make('db')->getConnections() as $connection) {
                $connection->rollBack(0); // a transaction that was left open
            }
            foreach ($this->steps as $step) {
                $step();
            }
            Facade::clearResolvedInstances();
        } catch (\Throwable $failed) {
            \error_log("The application can't be taken back, so this process ends: $failed");
            exit(1);
        }
    }

    private function keep(object $object): void
    {
        $properties = \Closure::bind(fn (): array => \get_object_vars($this), $object, $object::class)();
        $this->steps[] = \Closure::bind(function () use ($properties): void {
            foreach ($properties as $name => $value) {
                $this->$name = $value;
            }
        }, $object, $object::class);
    }
}
