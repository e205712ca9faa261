<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Request;

/** An HTTP request and its reply. */
final class HttpExchange extends Exchange
{
    /**
     * @var ?array{int, array<array-key, string|list<string>>} status and headers of a streamed reply
     */
    public ?array $head = null;

    public function __construct(
        Transport $transport,
        int $id,
        ?int $deadline,
        public readonly Request $request,
        /** What is asked for while it is read; null when the request came with its body. */
        public readonly ?BodyReader $body = null,
    ) {
        parent::__construct($transport, $id, $deadline);
    }

    public function kind(): Kind
    {
        return Kind::Http;
    }

    public function startedAt(): int
    {
        return $this->request->startedAt();
    }

    public function describe(): string
    {
        return "{$this->request->method} {$this->request->path}";
    }

    public function beginReply(): void
    {
        $this->body?->close();
    }

    public function endByExit(string $printed, int $flags): bool
    {
        // The extension adds to the reply what PHP was told of it.
        if ($this->head === null && $printed === '' && \headers_list() === [] && \http_response_code() < 201) {
            return false;
        }
        [$status, $headers] = $this->head ?? [200, []];
        $this->transport->reply($this->id, $status, $headers, $printed, $flags);

        return true;
    }
}
