<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadCall;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\TcpExchange;

/**
 * A connection of a TCP client, and what has happened on it. Its handler returns what is to be sent
 * to the client, or null.
 *
 * The next event of the same connection may come to another worker: what is to be known then
 * belongs into {@see $state}.
 */
final class TcpConnection
{
    private const MAX_STATE = Native::MAX_STATE;

    /**
     * What the server keeps with the connection, for the next event: numbers, texts, booleans, null
     * and arrays of them, up to 64 KB.
     *
     * @var array<array-key, mixed>
     */
    public array $state;

    private bool $isClosed = false;

    /**
     * For tests of a handler; the server makes those of real clients.
     *
     * @param string $message of the client, for {@see TcpEvent::Message}
     * @param string $id a UUID, by which methods such as `tcp.Write` know the connection
     * @param string $server which of `tcp.servers` it belongs to, in small letters
     * @param string $remoteAddress of the client, with its port; `unix:` over a unix socket
     * @param array<array-key, mixed> $state
     * @param string $certificate the subject of the client's certificate, such as `CN=tracker-7,O=Example`;
     *                            empty where it has shown none that an authority of `root_ca` has signed
     */
    public function __construct(
        public readonly TcpEvent $event,
        public readonly string $message = '',
        public readonly string $id = '',
        public readonly string $server = '',
        public readonly string $remoteAddress = '',
        public readonly bool $isEncrypted = false,
        array $state = [],
        public readonly string $certificate = '',
    ) {
        $this->state = $state;
    }

    /** Ends the connection, once what the handler returns is sent. */
    public function close(): void
    {
        $this->isClosed = true;
    }

    /** Whether {@see close()} was called. */
    public function isClosed(): bool
    {
        return $this->isClosed;
    }

    /** Seconds until the server gives the call up, 0 when it has; null when there is no limit. */
    public function timeLeft(): ?float
    {
        $exchange = Exchange::$current;

        return $exchange instanceof TcpExchange && $exchange->connection === $this
            ? $exchange->call()->timeLeft()
            : null;
    }

    /**
     * The state as the server keeps it.
     *
     * @internal
     * @throws BadCall when it can't be kept
     */
    public function packedState(): string
    {
        if ($this->state === []) {
            return '';
        }
        \array_walk_recursive($this->state, static function (mixed $value): void {
            if ($value !== null && !\is_scalar($value)) {
                $message = 'The state of a connection has an object of ' . \get_debug_type($value) . ' in it.';
                throw new BadCall("$message Accepted are numbers, texts, booleans, null and arrays of them.");
            }
        });
        $packed = \serialize($this->state);
        if (\strlen($packed) > self::MAX_STATE) {
            $length = \strlen($packed);
            throw new BadCall("The state of a connection takes $length bytes; at most 64 KB are kept.");
        }

        return $packed;
    }

    /**
     * @internal
     * @return array<array-key, mixed>
     */
    public static function unpackState(string $packed): array
    {
        $state = $packed === '' ? [] : @\unserialize($packed, ['allowed_classes' => false]);

        return \is_array($state) ? $state : [];
    }
}
