<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Pronghorn\Internal\Frame;
use Pronghorn\Internal\Native;

/**
 * A server at the other end of a socket in the same process. Holds what fits into the socket's
 * buffer, about 200 KB.
 */
final class SocketServer implements Server
{
    private int $requests = 0;

    /** @param resource $socket */
    public function __construct(private $socket)
    {
    }

    public function request(array $fields = [], string $body = ''): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::request($fields), $body));
    }

    public function raw(string $payload, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::raw($fields), $payload));
    }

    public function job(string $payload, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::job($fields), $payload));
    }

    public function tcp(string $message, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::tcp($fields), $message));
    }

    public function requests(): int
    {
        return $this->requests;
    }

    public function cancel(int $call): void
    {
        $this->send(Codec::frame(Codec::envelope(Native::CANCEL, $call)));
    }

    public function body(int $call, string $piece, bool $last): void
    {
        $this->send(Codec::frame(Codec::envelope(Native::BODY, $call), $piece, $last ? 0 : Frame::MORE));
    }

    public function ping(int $number): void
    {
        $this->send(Codec::frame(Codec::envelope(Native::PING, $number)));
    }

    public function stop(): void
    {
        $this->send(Codec::control('{"stop":true}'));
    }

    public function hangUp(): void
    {
        stream_socket_shutdown($this->socket, STREAM_SHUT_WR);
    }

    public function close(): void
    {
        fclose($this->socket);
    }

    public function send(string $bytes): void
    {
        fwrite($this->socket, $bytes);
    }

    public function received(): array
    {
        return Codec::messages($this->bytes());
    }

    public function bytes(): string
    {
        stream_set_blocking($this->socket, false);

        return (string) stream_get_contents($this->socket);
    }
}
