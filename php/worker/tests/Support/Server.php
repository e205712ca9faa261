<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

/**
 * The other end of a transport, played by the test. What it sends lies ready before the worker
 * looks.
 */
interface Server
{
    /**
     * @param array<string, mixed> $fields see {@see Codec::request()}
     */
    public function request(array $fields = [], string $body = ''): void;

    /** @param array<string, mixed> $fields see {@see Codec::raw()} */
    public function raw(string $payload, array $fields = []): void;

    /** @param array<string, mixed> $fields see {@see Codec::job()} */
    public function job(string $payload, array $fields = []): void;

    /** @param array<string, mixed> $fields see {@see Codec::tcp()} */
    public function tcp(string $message, array $fields = []): void;

    public function cancel(int $call): void;

    /** A piece of the body of a request that came without it. */
    public function body(int $call, string $piece, bool $last): void;

    public function ping(int $number): void;

    /** How many calls were sent. */
    public function requests(): int;

    /** Asks the worker to stop. */
    public function stop(): void;

    /** Closes its end for writing: the worker sees that the server is gone. */
    public function hangUp(): void;

    /** Closes its end for good. */
    public function close(): void;

    /** Bytes as they are. */
    public function send(string $bytes): void;

    /** What came from the worker since the last time. */
    public function bytes(): string;

    /** @return list<Message> what came from the worker since the last time */
    public function received(): array;
}
