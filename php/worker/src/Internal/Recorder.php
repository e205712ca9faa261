<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

// phpcs:disable Generic.CodeAnalysis.UnusedFunctionParameter -- a test asks for less than a server

/** A transport without a server: it keeps what a handler sends. */
final class Recorder implements Transport
{
    public int $status = 0;
    /** @var array<array-key, string|int|list<string|int>> */
    public array $headers = [];
    /** @var list<string> pieces, as they were sent */
    public array $pieces = [];
    /** @var list<array{int, array<array-key, mixed>}> statuses and headers */
    public array $informational = [];
    public ?string $route = null;

    public function next(): ?Exchange
    {
        return null;
    }

    public function reply(
        int $call,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
        bool $more = false,
    ): void {
        $this->status = $status;
        $this->headers = $headers;
        $this->pieces = [$flags & Native::BODY_FILE ? (string) \file_get_contents($body) : $body];
    }

    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void
    {
        if ($piece !== '') {
            $this->pieces[] = $piece;
        }
    }

    public function informational(int $call, int $status, array $headers): void
    {
        $this->informational[] = [$status, $headers];
    }

    public function route(int $call, string $name): void
    {
        $this->route ??= $name;
    }

    public function replyRaw(int $call, string $payload, int $flags = 0): void
    {
    }

    public function beginRaw(int $call, string $piece): void
    {
    }

    public function replyJob(int $call, int $outcome, int $delay, string $body, int $flags = 0): void
    {
    }

    public function replyTcp(int $call, bool $close, ?string $state, string $body, int $flags = 0): void
    {
    }

    public function error(int $call, Failure $failure, int $flags = 0): void
    {
    }

    public function extend(int $call, int $milliseconds): void
    {
    }

    public function remark(Failure $failure): void
    {
    }

    public function log(LogRecord $record): void
    {
    }

    public function counts(string $changes): void
    {
    }

    public function free(int $call): void
    {
    }

    public function body(int $call, int $most): array
    {
        return ['', true];
    }

    public function ask(string $method, string $argument): ?array
    {
        return null;
    }

    public function cancelled(int $call): bool
    {
        return false;
    }
}
