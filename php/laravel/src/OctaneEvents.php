<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Http\Request;
use Laravel\Octane\Events\RequestHandled;
use Laravel\Octane\Events\RequestReceived;
use Laravel\Octane\Events\RequestTerminated;
use Laravel\Octane\Events\WorkerStarting;
use Laravel\Octane\Events\WorkerStopping;
use Symfony\Component\HttpFoundation\Response;

/**
 * Tells packages what Laravel Octane would tell them, by its own events, where Octane is installed:
 * they clear by its listeners what they keep of a request.
 *
 * Octane serves a copy of the application, and speaks of both; here both are the same one.
 */
final class OctaneEvents
{
    private function __construct(private readonly Application $app)
    {
    }

    /** Null: Octane is not installed. */
    public static function of(Application $app): ?self
    {
        return \class_exists(RequestReceived::class) ? new self($app) : null;
    }

    public function started(): void
    {
        $this->tell(new WorkerStarting($this->app));
    }

    public function received(Request $request): void
    {
        $this->tell(new RequestReceived($this->app, $this->app, $request));
    }

    public function handled(Request $request, Response $response): void
    {
        $this->tell(new RequestHandled($this->app, $request, $response));
    }

    public function terminated(Request $request, Response $response): void
    {
        $this->tell(new RequestTerminated($this->app, $this->app, $request, $response));
    }

    public function stopped(): void
    {
        $this->tell(new WorkerStopping($this->app));
    }

    private function tell(object $event): void
    {
        $this->app->make('events')->dispatch($event);
    }
}
