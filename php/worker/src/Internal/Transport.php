<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;

/**
 * How this process is connected with the server. The only thing that differs between a plain PHP
 * worker and one with the extension: everything above sees calls come in as {@see Exchange} and
 * sends replies through these methods.
 *
 * Every method throws {@see ConnectionLost} when the server is gone, and {@see ProtocolError} when
 * it sends nonsense.
 */
interface Transport
{
    /** Waits for a call. Null when the server stops this worker or has gone. */
    public function next(): ?Exchange;

    /**
     * The reply to an HTTP request: its head with its body, or with the first piece of it when more
     * follows.
     *
     * @param array<array-key, string|list<string>> $headers
     */
    public function reply(
        int $call,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
        bool $more = false,
    ): void;

    /** The reply to a raw call, whole. */
    public function replyRaw(int $call, string $payload, int $flags = 0): void;

    /** The first piece of the reply to a call without a head, of which more follows. */
    public function beginRaw(int $call, string $piece): void;

    /**
     * The reply to a job.
     *
     * @param int $outcome one of the numbers `JOB_…`
     * @param int $delay milliseconds until it runs again, for `JOB_RETRY`
     * @param string $body what came of it, or why it failed
     */
    public function replyJob(int $call, int $outcome, int $delay, string $body, int $flags = 0): void;

    /**
     * The answer to an event of a connection.
     *
     * @param bool $close whether the connection ends once the body is sent
     * @param ?string $state what the server keeps with it from now on; null: what it kept before
     * @param string $body for the client
     */
    public function replyTcp(int $call, bool $close, ?string $state, string $body, int $flags = 0): void;

    /** The next piece. The last one ends the reply; only that one has flags. */
    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void;

    /**
     * What comes before the reply to an HTTP request.
     *
     * @param array<string, string|list<string>> $headers
     */
    public function informational(int $call, int $status, array $headers): void;

    public function error(int $call, Failure $failure, int $flags = 0): void;

    public function extend(int $call, int $milliseconds): void;

    /** Tells the operator of a mistake that ended no call. At any time. */
    public function remark(Failure $failure): void;

    /** Says what the application calls the route of the call under way. */
    public function route(int $call, string $name): void;

    /** Has the server log a record. At any time. */
    public function log(LogRecord $record): void;

    /** @param string $changes of metrics, a JSON list */
    public function counts(string $changes): void;

    /** Ends the deferred work of a call whose reply said BUSY. */
    public function free(int $call): void;

    /**
     * Asks for the next piece of the body of a request that came without it, and waits for it.
     *
     * @param int<1, max> $most bytes
     * @return array{string, bool} the piece, and whether it is the last one
     * @throws ClientGone when the rest does not come
     */
    public function body(int $call, int $most): array;

    /**
     * Calls a method of the server, and waits for what it returns. Only while a call is under way:
     * until its reply is complete, or until what it has deferred is done.
     *
     * @param string $argument as JSON, of at most MAX_ARGUMENT bytes
     * @return ?array{bool, string} whether there is a result, and the result as JSON or why there
     *     is none; null when no call is under way
     */
    public function ask(string $method, string $argument): ?array;

    /** Whether the server said that the client of this call has left. Does not wait. */
    public function cancelled(int $call): bool;
}
