<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadCall;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\HttpExchange;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

/**
 * The call under way: one request, or one raw call, on its way through this worker. PSR-7 requests
 * carry it as the attribute `Call::class`.
 */
final class Call
{
    /** The server's number of this call, unique among those that this worker has yet to answer. */
    public readonly int $id;

    /** When the server accepted the call: seconds since the Unix epoch. */
    public readonly float $startedAt;

    /** @internal */
    public function __construct(private readonly Exchange $exchange)
    {
        $this->id = $exchange->id;
        $this->startedAt = $exchange->startedAt() / 1e6;
    }

    /** @throws NotAWorker when no call is under way in this process */
    public static function current(): self
    {
        return Exchange::$current?->call() ?? throw new NotAWorker(
            'No call is under way in this process: Call::current() is for code that a handler runs.'
        );
    }

    /** Seconds until the server gives this call up, 0 when it has; null when there is no limit. */
    public function timeLeft(): ?float
    {
        $deadline = $this->exchange->deadline;

        return $deadline === null ? null : \max(0.0, ($deadline - \hrtime(true)) / 1e9);
    }

    /**
     * Asks the server for more time. A time that ends before the limit it has takes nothing away.
     *
     * @param float $seconds from now, above 0; the server grants at most the pool's limit
     * @throws Exception when the time makes no sense, or the call has been answered
     * @throws ConnectionLost when the server is gone
     */
    public function extend(float $seconds): void
    {
        if (!($seconds > 0 && $seconds < 0xFFFFFFFF / 1000)) {
            $given = \is_nan($seconds) ? 'NAN' : $seconds; // PHP 8.5 warns where NAN becomes a string
            throw new BadCall("A call cannot be extended by $given seconds.");
        }
        if ($this->exchange->state === Exchange::DONE) {
            throw new BadCall('This call has been answered, and has no time limit any more.');
        }
        $milliseconds = \max(1, (int) ($seconds * 1000));
        $this->exchange->transport->extend($this->id, $milliseconds);
        if ($this->exchange->deadline !== null) {
            $this->exchange->deadline = \max($this->exchange->deadline, \hrtime(true) + $milliseconds * 1_000_000);
        }
    }

    /**
     * Names the route of this call, `users.show` or `/user/{id}`: metrics and records go by it,
     * where the server would have to guess it from the path. The first name counts.
     *
     * @param string $name from 1 to 100 printable characters of ASCII, without quotes and
     *     backslashes; one for each route and not for each request: the server counts the first 200
     *     apart
     * @throws Exception when the name makes no sense, or the call has been answered
     * @throws ConnectionLost when the server is gone
     */
    public function route(string $name): void
    {
        if (\preg_match('/^[^\x00-\x1f"\\\\\x7f-\xff]{1,100}$/D', $name) !== 1) {
            throw new BadCall('The name of a route has from 1 to 100 printable characters of ASCII, and no quotes.');
        }
        if ($this->exchange->state === Exchange::DONE) {
            throw new BadCall('This call has been answered, and its route cannot be named any more.');
        }
        $this->exchange->transport->route($this->id, $name);
    }

    /**
     * Whether the client still waits for the reply. Costs a system call.
     *
     * @throws ConnectionLost when the server is gone
     */
    public function clientConnected(): bool
    {
        return !$this->exchange->isGone();
    }

    /**
     * Sends `103 Early Hints`, so that the client fetches what the page will need while it is being
     * made.
     *
     * @param string ...$links values of `Link` headers, e.g. `</app.css>; rel=preload; as=style`
     * @throws Exception when the reply has begun, or the call is no HTTP request
     * @throws ConnectionLost when the server is gone
     */
    public function earlyHints(string ...$links): void
    {
        $this->http();
        if ($this->exchange->state !== Exchange::FRESH) {
            throw new BadCall('Early hints come before the reply, which has begun.');
        }
        if ($links !== []) {
            $this->exchange->transport->informational($this->id, 103, ['Link' => \array_values($links)]);
        }
    }

    /**
     * Runs the function when the reply was sent. The client waits no longer, this worker is not
     * free until it returns. What it throws goes to the log; an `exit` ends this function only, if
     * the extension is there. All that is deferred has the pool's `exec_ttl` for itself, from the
     * reply on.
     *
     * @param callable(): mixed $work
     * @throws Exception when the call is over
     */
    public function defer(callable $work): void
    {
        if ($this->exchange !== Exchange::$current) {
            throw new BadCall('This call is over: nothing can be deferred to its end.');
        }
        $this->exchange->deferred[] = $work;
    }

    /**
     * What the client asked for.
     *
     * @throws Exception when the call is no HTTP request
     */
    public function request(): Request
    {
        return $this->http()->request;
    }

    /**
     * The request for code that wants PSR-7, in an own loop.
     *
     * @throws Exception in a handler, which gets it as its parameter; or when there is no PSR-17
     *     factory
     */
    public function serverRequest(): ServerRequestInterface
    {
        return $this->loop()->serverRequest($this->http());
    }

    /**
     * Answers the call, in an own loop.
     *
     * @param string|iterable<string>|array<mixed>|\Stringable|Response|ResponseInterface $reply as
     *     a handler returns it
     * @throws Exception in a handler, which returns its reply; or when the call has been answered
     */
    public function reply(string|iterable|\Stringable|Response|ResponseInterface $reply): void
    {
        $this->loop()->reply($this->http(), $reply);
    }

    /**
     * Says that this call failed, in an own loop: the client gets 500, the log gets the exception.
     *
     * @throws Exception in a handler, which throws; or when the call has been answered
     */
    public function fail(\Throwable $thrown): void
    {
        $this->loop()->fail($this->exchange, $thrown);
    }

    private function http(): HttpExchange
    {
        return $this->exchange instanceof HttpExchange
            ? $this->exchange
            : throw new BadCall('This call is no HTTP request.');
    }

    private function loop(): Internal\Loop
    {
        return $this->exchange->loop
            ?? throw new BadCall('This is for calls of Worker::next(): a handler returns its reply, or throws.');
    }
}
