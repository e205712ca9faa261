<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Failure;
use Pronghorn\Internal\LogRecord;
use Pronghorn\Internal\Transport;

/**
 * A transport whose server hangs up as soon as the worker has taken every request, so that a loop
 * ends by itself.
 */
final class UntilServed implements Transport
{
    /** Called when the worker is about to wait. */
    public ?\Closure $idle = null;
    private int $taken = 0;

    public function __construct(public readonly Transport $inner, private readonly Server $server)
    {
    }

    public function next(): ?Exchange
    {
        if ($this->idle !== null) {
            ($this->idle)();
        }
        if ($this->taken++ === $this->server->requests()) {
            $this->server->hangUp();
        }

        return $this->inner->next();
    }

    public function reply(
        int $call,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
        bool $more = false,
    ): void {
        $this->inner->reply($call, $status, $headers, $body, $flags, $more);
    }

    public function replyRaw(int $call, string $payload, int $flags = 0): void
    {
        $this->inner->replyRaw($call, $payload, $flags);
    }

    public function beginRaw(int $call, string $piece): void
    {
        $this->inner->beginRaw($call, $piece);
    }

    public function replyJob(int $call, int $outcome, int $delay, string $body, int $flags = 0): void
    {
        $this->inner->replyJob($call, $outcome, $delay, $body, $flags);
    }

    public function replyTcp(int $call, bool $close, ?string $state, string $body, int $flags = 0): void
    {
        $this->inner->replyTcp($call, $close, $state, $body, $flags);
    }

    public function counts(string $changes): void
    {
        $this->inner->counts($changes);
    }

    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void
    {
        $this->inner->chunk($call, $piece, $flags, $more);
    }

    public function informational(int $call, int $status, array $headers): void
    {
        $this->inner->informational($call, $status, $headers);
    }

    public function error(int $call, Failure $failure, int $flags = 0): void
    {
        $this->inner->error($call, $failure, $flags);
    }

    public function remark(Failure $failure): void
    {
        $this->inner->remark($failure);
    }

    public function route(int $call, string $name): void
    {
        $this->inner->route($call, $name);
    }

    public function log(LogRecord $record): void
    {
        $this->inner->log($record);
    }

    public function extend(int $call, int $milliseconds): void
    {
        $this->inner->extend($call, $milliseconds);
    }

    public function free(int $call): void
    {
        $this->inner->free($call);
    }

    public function body(int $call, int $most): array
    {
        return $this->inner->body($call, $most);
    }

    public function ask(string $method, string $argument): ?array
    {
        return $this->inner->ask($method, $argument);
    }

    public function cancelled(int $call): bool
    {
        return $this->inner->cancelled($call);
    }
}
