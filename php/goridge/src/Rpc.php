<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Frame;
use Pronghorn\Internal\ProtocolError;

/**
 * Calls methods of the server and of its services: Goridge RPC with JSON, as RoadRunner has it.
 *
 * The connection is kept from call to call. One that the server has closed in the meantime is
 * opened again without a word; one that is lost while a call is under way is not, because the call
 * may have been carried out. The next call connects anew. A forked child gets a connection of its
 * own.
 *
 * A worker of Pronghorn needs no connection while it has a call: without an address, calls go by
 * the one over which it gets its calls, also where the server has no section `rpc`.
 */
final class Rpc
{
    /** RoadRunner's, where `rpc.listen` is not set. */
    private const ADDRESS = 'tcp://127.0.0.1:6001';
    /** Seconds. The server is on this machine, or next door. */
    private const CONNECT_TIMEOUT = 5.0;
    /** Seconds; twelve days. What PHP waits for on a socket is a 32-bit number of milliseconds. */
    private const LONGEST_TIMEOUT = 1_000_000;

    /** @var ?resource */
    private $socket = null;
    private int $pid = 0;
    private int $number = 0;

    private function __construct(
        private readonly string $address,
        private readonly float $timeout,
        private readonly ?Internal\WorkerChannel $channel,
    ) {
    }

    /**
     * @param ?string $address `tcp://host:port` or `unix:///path`; by default what the server put
     *     into RR_RPC
     * @param float $timeout seconds that one call may take, above 0; in a worker, the deadline of
     *     the call under way counts
     * @throws ConnectionLost when nobody listens there
     * @throws \ValueError when the time-out makes no sense
     */
    public static function connect(?string $address = null, float $timeout = 60.0): self
    {
        if (!($timeout > 0 && $timeout < self::LONGEST_TIMEOUT)) {
            $given = \is_nan($timeout) ? 'NAN' : $timeout; // PHP 8.5 warns where NAN becomes a string
            $longest = self::LONGEST_TIMEOUT;
            throw new \ValueError("A call's time-out is above 0 and below $longest seconds, this is $given.");
        }
        $channel = $address === null ? Internal\WorkerChannel::$current : null;
        $rpc = new self($address ?? (\getenv('RR_RPC') ?: self::ADDRESS), $timeout, $channel);
        if ($channel === null) {
            $rpc->open();
        }

        return $rpc;
    }

    /**
     * @param string $method e.g. `rpc.Version`
     * @param mixed $argument what JSON can hold
     * @return mixed what the method returned, objects as arrays
     * @throws RpcError when the server refused the call or the method failed; of a call that has
     *     more than 64 MB, nothing is sent
     * @throws ConnectionLost when the server is gone or did not answer in time
     * @throws \JsonException when the argument can't be written as JSON
     */
    public function call(string $method, mixed $argument = null): mixed
    {
        $json = \json_encode($argument, \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_PRESERVE_ZERO_FRACTION);
        $length = \strlen($method) + \strlen($json);
        if ($length > Frame::MAX_PAYLOAD) {
            // The server would close the connection, and nobody could say why.
            throw new RpcError(
                "rpc: a call of $method with $length bytes was not sent: the server takes at most "
                    . Frame::MAX_PAYLOAD . ' bytes in a call.',
            );
        }
        $answer = $this->channel?->call($method, $json);
        if ($answer !== null) {
            [$isResult, $body] = $answer;

            return $isResult ? \json_decode($body, true, 512, \JSON_THROW_ON_ERROR) : throw new RpcError($body);
        }
        $this->number = $this->number % 0xFFFFFFFF + 1;
        $options = [$this->number, \strlen($method)];
        if (!$this->isOpen()) {
            $this->open();
        }
        try {
            $this->send(Frame::encode(Frame::JSON, 0, $options, $method . $json));
            $reply = $this->receive();
        } catch (Exception $lost) {
            // A reply that comes late must not be taken for that of another call.
            $this->socket = null;
            throw $lost;
        }
        if ($reply->options !== $options) {
            $this->socket = null;
            throw new ProtocolError("The RPC server answered another call than $method.");
        }

        return self::result($reply, \substr($reply->payload, \strlen($method)));
    }

    private static function result(Frame $reply, string $payload): mixed
    {
        if ($reply->flags & Frame::ERROR) {
            throw new RpcError($payload);
        }
        if (!($reply->flags & Frame::JSON)) {
            throw new ProtocolError("The RPC server answered with flags $reply->flags where JSON was due.");
        }

        return \json_decode($payload, true, 512, \JSON_THROW_ON_ERROR);
    }

    private function open(): void
    {
        if (\preg_match('#^(?:tcp://[^/]+:\d+|unix://.+)$#D', $this->address) !== 1) {
            throw new ConnectionLost("The RPC address $this->address is neither tcp://host:port nor unix:///path.");
        }
        $socket = @\stream_socket_client($this->address, $code, $reason, self::CONNECT_TIMEOUT);
        if ($socket === false) {
            throw new ConnectionLost("No RPC server answers at $this->address: $reason. Is `rpc.listen` set to it?");
        }
        $this->socket = $socket;
        $this->pid = (int) \getmypid();
    }

    /** A connection that can be read from between two calls is one that the server has closed. */
    private function isOpen(): bool
    {
        if ($this->socket === null || $this->pid !== \getmypid()) {
            return false;
        }
        $read = [$this->socket];
        $none = null;

        return @\stream_select($read, $none, $none, 0) === 0;
    }

    private function send(string $frame): void
    {
        \stream_set_timeout($this->socket, ...$this->timeLeft(\hrtime(true)));
        for ($sent = 0; $sent < \strlen($frame); $sent += $count) {
            $count = @\fwrite($this->socket, $sent === 0 ? $frame : \substr($frame, $sent));
            if ($count === false || $count === 0) {
                throw new ConnectionLost("The RPC server at $this->address closed the connection.");
            }
        }
    }

    private function receive(): Frame
    {
        $since = \hrtime(true);
        $bytes = '';
        while (($length = Frame::length($bytes)) === null || \strlen($bytes) < $length) {
            $bytes .= $this->read(($length ?? 12) - \strlen($bytes), $since);
        }

        return Frame::decode($bytes);
    }

    private function read(int $bytes, int $since): string
    {
        \stream_set_timeout($this->socket, ...$this->timeLeft($since));
        $piece = @\fread($this->socket, $bytes);
        if ($piece === false || $piece === '') {
            throw new ConnectionLost(\stream_get_meta_data($this->socket)['timed_out']
                ? "The RPC server at $this->address did not answer within $this->timeout s."
                : "The RPC server at $this->address closed the connection.");
        }

        return $piece;
    }

    /** @return array{int, int} seconds and microseconds, never both 0 */
    private function timeLeft(int $since): array
    {
        $microseconds = \max(1, (int) ($this->timeout * 1e6) - \intdiv(\hrtime(true) - $since, 1000));

        return [\intdiv($microseconds, 1_000_000), $microseconds % 1_000_000];
    }
}
