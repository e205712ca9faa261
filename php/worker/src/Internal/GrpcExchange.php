<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\GrpcCall;

/**
 * A call of a gRPC method. Its messages come and go with gRPC's five bytes before each; the reply
 * ends with lines of metadata as gRPC-Web has them.
 */
final class GrpcExchange extends Exchange
{
    /** Before a message: not compressed, and its length. */
    private const MESSAGE = "\0";
    /** Before lines of metadata. */
    private const METADATA = "\x80";
    /** The beginning of PHP's message when `memory_limit` is reached. */
    private const NO_MEMORY = 'Allowed memory size of ';
    private const RESOURCE_EXHAUSTED = 8;
    private const INTERNAL = 13;
    /** Pieces of a reply are sent at once, and the client is looked for before one. */
    private string $written = '';
    private bool $sentHeaders = false;
    /** Null when the call is over: each holds the other. */
    public ?GrpcCall $grpcCall;

    /**
     * @param int $startedAt microseconds since the Unix epoch
     * @param array<array-key, non-empty-list<string>> $metadata
     */
    public function __construct(
        Transport $transport,
        int $id,
        ?int $deadline,
        private readonly int $startedAt,
        private readonly string $service,
        private readonly string $method,
        array $metadata,
        private readonly BodyReader|string $body,
        private readonly bool $serverStreams,
    ) {
        parent::__construct($transport, $id, $deadline);
        $clientStreams = $body instanceof BodyReader;
        $this->grpcCall = new GrpcCall($this, $service, $method, $metadata, $clientStreams, $serverStreams);
    }

    public function kind(): Kind
    {
        return Kind::Grpc;
    }

    public function startedAt(): int
    {
        return $this->startedAt;
    }

    public function describe(): string
    {
        return "gRPC /{$this->service}/{$this->method}";
    }

    public function close(): void
    {
        parent::close();
        $this->grpcCall = null;
    }

    /** The client of a stream may go on while the reply has begun. */
    public function beginReply(): void
    {
    }

    public function endByExit(string $printed, int $flags): bool
    {
        return false;
    }

    /** The first message; null when there is none. */
    public function message(): ?string
    {
        if (\is_string($this->body)) {
            return $this->body === '' ? null : \substr($this->body, 5, self::length($this->body));
        }
        foreach ($this->messages() as $message) {
            return $message;
        }

        return null;
    }

    /**
     * Messages as the client sends them; each is asked for when it is wanted.
     *
     * @return \Generator<int, string>
     */
    public function messages(): \Generator
    {
        if (\is_string($this->body)) {
            for ($at = 0; $at < \strlen($this->body); $at += 5 + $length) {
                $length = self::length(\substr($this->body, $at, 5));
                yield \substr($this->body, $at + 5, $length);
            }

            return;
        }
        while (($head = $this->read(5)) !== '') {
            $length = self::length($head);
            yield $length === 0 ? '' : $this->read($length);
        }
    }

    /** The next so many bytes; empty at the end. */
    private function read(int $length): string
    {
        $read = '';
        while (\strlen($read) < $length) {
            $piece = $this->body->read($length - \strlen($read));
            if ($piece === '') {
                return $read === '' ? '' : throw new ProtocolError('a message that is not whole');
            }
            $read .= $piece;
        }

        return $read;
    }

    private static function length(string $head): int
    {
        if (\strlen($head) < 5 || $head[0] !== self::MESSAGE) {
            throw new ProtocolError('a message without its five bytes');
        }

        return \unpack('N', $head, 1)[1];
    }

    /** @param array<string, list<string>> $headers */
    public function sendMessage(string $message, array $headers): void
    {
        $piece = $this->headers($headers) . self::MESSAGE . \pack('N', \strlen($message)) . $message;
        if (!$this->serverStreams) {
            $this->written .= $piece;
        } elseif ($this->state === self::FRESH) {
            $this->transport->beginRaw($this->id, $piece);
            $this->state = self::STREAMING;
        } else {
            $this->transport->chunk($this->id, $piece, more: true);
        }
    }

    /**
     * @param array<string, list<string>> $headers
     * @param array<string, list<string>> $trailers
     */
    public function end(int $status, string $message, string $details, array $headers, array $trailers): void
    {
        $lines = "grpc-status: $status\r\n";
        if ($message !== '') {
            $lines .= 'grpc-message: ' . self::percent($message) . "\r\n";
        }
        if ($details !== '') {
            $lines .= 'grpc-status-details-bin: ' . \base64_encode($details) . "\r\n";
        }
        $this->finish($this->headers($headers) . self::metadata($lines . self::lines($trailers)));
    }

    /**
     * Ends a stream that has begun and can't go on: its client gets the status of a call that has
     * not begun, and the server is told why.
     *
     * @param int $flags of the reply's end
     */
    public function breakOff(Failure $failure, int $flags = 0): void
    {
        [$status, $message] = \str_starts_with($failure->message, self::NO_MEMORY)
            ? [self::RESOURCE_EXHAUSTED, 'the method ran out of memory']
            : [self::INTERNAL, 'the method failed'];
        $thrown = \base64_encode($failure->encode());
        $lines = "grpc-status: $status\r\ngrpc-message: $message\r\ngrpc-thrown-bin: $thrown\r\n";
        $this->finish(self::metadata($lines), $flags);
    }

    /** @param int $flags of the reply's end */
    private function finish(string $end, int $flags = 0): void
    {
        $end = $this->written . $end;
        $flags |= $this->deferred === [] ? 0 : Native::BUSY;
        if ($this->state === self::FRESH) {
            $this->transport->replyRaw($this->id, $end, $flags);
        } else {
            $this->transport->chunk($this->id, $end, $flags);
        }
        $this->written = '';
        $this->state = self::DONE;
    }

    /** @param array<string, list<string>> $headers */
    private function headers(array $headers): string
    {
        if ($this->sentHeaders) {
            return '';
        }
        $this->sentHeaders = true;

        return $headers === [] ? '' : self::metadata(self::lines($headers));
    }

    private static function metadata(string $lines): string
    {
        return self::METADATA . \pack('N', \strlen($lines)) . $lines;
    }

    /** @param array<string, list<string>> $metadata */
    private static function lines(array $metadata): string
    {
        $lines = '';
        foreach ($metadata as $name => $values) {
            foreach ($values as $value) {
                $value = \str_ends_with((string) $name, '-bin') ? \base64_encode($value) : $value;
                $lines .= "$name: $value\r\n";
            }
        }

        return $lines;
    }

    private static function percent(string $message): string
    {
        return (string) \preg_replace_callback(
            '/[^\x20-\x24\x26-\x7e]/',
            static fn (array $match): string => \sprintf('%%%02X', \ord($match[0])),
            $message,
        );
    }
}
