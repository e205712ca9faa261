<?php

declare(strict_types=1);

namespace Pronghorn\Grpc;

use Pronghorn\GrpcCall;

/** A call beside its messages: what the client sent with it, and what goes back. */
final class Context
{
    /** @var array<string, list<string>> */
    private array $trailers = [];

    /** @internal */
    public function __construct(private readonly GrpcCall $call)
    {
    }

    /** The first value of a name; bytes where the name ends in `-bin`. Null when there is none. */
    public function metadata(string $name): ?string
    {
        return $this->call->metadata($name);
    }

    /** @return array<array-key, non-empty-list<string>> all of it, by names in lower case */
    public function allMetadata(): array
    {
        return $this->call->metadata;
    }

    /** The client's address with its port. */
    public function peer(): string
    {
        return $this->call->metadata(':peer.address') ?? '';
    }

    /** The subject of the client's certificate, `CN=billing,O=Example`; null without a verified one. */
    public function certificate(): ?string
    {
        return $this->call->metadata(':peer.certificate.subject');
    }

    /** Adds metadata before the first message. */
    public function header(string $name, string $value): void
    {
        $this->call->header($name, $value);
    }

    /** Adds metadata behind the last message. */
    public function trailer(string $name, string $value): void
    {
        $this->trailers[$name][] = $value;
    }

    /** Whether the client has left, or its deadline has passed. */
    public function isCancelled(): bool
    {
        return $this->call->isCancelled();
    }

    /** Seconds until the deadline, 0 when it has passed; null when there is none. */
    public function timeLeft(): ?float
    {
        return $this->call->timeLeft();
    }

    /**
     * @internal
     * @return array<string, list<string>>
     */
    public function trailers(): array
    {
        return $this->trailers;
    }
}
