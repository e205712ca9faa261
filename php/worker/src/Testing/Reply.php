<?php

declare(strict_types=1);

namespace Pronghorn\Testing;

/** What a client would have got. */
final class Reply
{
    /**
     * @internal {@see Client} makes one
     *
     * @param array<lowercase-string, list<string>> $headers
     * @param list<string> $pieces of the body, as they were sent
     * @param ?string $route what the handler has called the route
     */
    public function __construct(
        public readonly int $status,
        public readonly array $headers,
        public readonly array $pieces,
        public readonly ?string $route,
    ) {
    }

    /** The first value of a header, in any case of letters; null when there is none. */
    public function header(string $name): ?string
    {
        return $this->headers[\strtolower($name)][0] ?? null;
    }

    public function body(): string
    {
        return \implode('', $this->pieces);
    }

    /** @throws \JsonException when the body is none */
    public function json(): mixed
    {
        return \json_decode($this->body(), true, 512, \JSON_THROW_ON_ERROR);
    }
}
