<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadCall;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\GrpcExchange;

/**
 * A gRPC call under way, with its messages as bytes. `Pronghorn\Grpc\Server` of pronghorn/grpc
 * makes objects of them.
 */
final class GrpcCall
{
    /** @var array<string, list<string>> */
    private array $headers = [];
    private bool $answered = false;

    /**
     * @internal
     * @param array<array-key, non-empty-list<string>> $metadata
     */
    public function __construct(
        private readonly GrpcExchange $exchange,
        /** With its package: `shop.v1.Orders`. */
        public readonly string $service,
        public readonly string $method,
        /** Metadata of the client, by names in lower case; values of `…-bin` are bytes. */
        public readonly array $metadata,
        /** Whether the client may send any number of messages. */
        public readonly bool $clientStreams,
        /** Whether the reply may have any number of messages. */
        public readonly bool $serverStreams,
    ) {
    }

    /** The first value of a name, null when there is none. */
    public function metadata(string $name): ?string
    {
        return $this->metadata[\strtolower($name)][0] ?? null;
    }

    /** The message of a client that sends one; null when it has sent none. */
    public function message(): ?string
    {
        return $this->exchange->message();
    }

    /**
     * Messages of the client, each when it is asked for: what nobody asks for stays with the
     * client.
     *
     * @return \Generator<int, string>
     * @throws ClientGone when the client leaves before its last one
     */
    public function messages(): \Generator
    {
        return $this->exchange->messages();
    }

    /** Adds metadata before the first message. */
    public function header(string $name, string $value): void
    {
        if ($this->answered) {
            throw new BadCall('The reply has begun: metadata can be sent with its end.');
        }
        $this->headers[self::name($name)][] = self::value($name, $value);
    }

    /**
     * Sends a message. Waits where the client does not keep up.
     *
     * @throws ClientGone when nobody waits for it any more
     */
    public function send(string $message): void
    {
        $this->expectOpen();
        if ($this->answered && !$this->serverStreams) {
            throw new BadCall("{$this->method} answers with one message, and that was sent.");
        }
        if ($this->serverStreams && $this->isCancelled()) {
            throw new ClientGone('The client left before the reply was complete.');
        }
        $this->exchange->sendMessage($message, $this->headers);
        $this->answered = true;
    }

    /**
     * Ends the call. A handler that returns without it has ended it with success.
     *
     * @param int $status 0 for success; gRPC's numbers, from 0 to 16
     * @param string $message for people
     * @param string $details a serialized `google.rpc.Status`
     * @param array<string, string|list<string>> $trailers metadata behind the messages
     */
    public function end(int $status = 0, string $message = '', string $details = '', array $trailers = []): void
    {
        $this->expectOpen();
        if ($status < 0 || $status > 16) {
            throw new BadCall("gRPC has no status $status: 0 to 16.");
        }
        $behind = [];
        foreach ($trailers as $name => $values) {
            foreach ((array) $values as $value) {
                $behind[self::name((string) $name)][] = self::value((string) $name, $value);
            }
        }
        $this->exchange->end($status, $message, $details, $this->headers, $behind);
    }

    /** Whether a message was sent: metadata cannot go before it any more. */
    public function hasBegun(): bool
    {
        return $this->answered;
    }

    /** Whether the client has left, or its deadline has passed. */
    public function isCancelled(): bool
    {
        return $this->exchange->isGone();
    }

    /** Seconds until the server gives this call up, 0 when it has; null when there is no limit. */
    public function timeLeft(): ?float
    {
        return $this->exchange->call()->timeLeft();
    }

    private function expectOpen(): void
    {
        if ($this->exchange->state === Exchange::DONE) {
            throw new BadCall('This call has been answered.');
        }
    }

    private static function name(string $name): string
    {
        $name = \strtolower($name);
        if (\preg_match('/^[a-z0-9_.-]+$/D', $name) !== 1 || \str_starts_with($name, 'grpc-')) {
            throw new BadCall("`$name` is no name of metadata.");
        }

        return $name;
    }

    private static function value(string $name, string $value): string
    {
        if (!\str_ends_with(\strtolower($name), '-bin') && \preg_match('/[^\x20-\x7e]/', $value) === 1) {
            throw new BadCall("The value of `$name` is no printable ASCII: a name that ends in -bin takes any bytes.");
        }

        return $value;
    }
}
