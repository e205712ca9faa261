<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;
use Pronghorn\Request;

/**
 * The transport of a plain PHP worker: Goridge frames over a stream socket.
 *
 * `recvfrom` and `sendto`, not `fread` and `fwrite`: those poll before each read, which would be a third system call per
 * request.
 */
final class Relay implements Transport
{
    /** Holds any request without a body; what is longer takes a second read. */
    private const READ = 8192;
    /** One read of a long frame. PHP allocates this much before it knows how much there is. */
    private const READ_MORE = 256 * 1024;
    /** Frame header, option and the fixed part of a request. */
    private const REQUEST_HEAD = 16 + Native::REQUEST_HEAD;
    /** The first two bytes of every native frame: version 1, one option; the codec's flag. */
    private const NATIVE = "\x14\x02";
    /** Writes that may fail in a row, by signals, before the server counts as gone. */
    private const WRITES = 16;

    /** @var resource */
    private $socket;
    /** What was read and not yet used; begins with a frame. */
    private string $buffer = '';
    private bool $stopped = false;

    /** @param resource $socket connected, blocking */
    public function __construct($socket)
    {
        $this->socket = $socket;
    }

    public function announce(array $kinds): void
    {
        $hello = \json_decode($this->frame(Frame::CONTROL)->payload, true);
        if (!isset($hello['native'])) {
            throw new ProtocolError('the server does not offer the native codec on this socket');
        }
        $this->send(Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], \json_encode([
            'pid' => \getmypid(),
            'codec' => 'native',
            'version' => Native::VERSION,
            'kinds' => $kinds,
            'sdk' => 'pronghorn/worker ' . Native::SDK,
            'php' => \PHP_VERSION,
        ], \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES)));
    }

    public function next(): ?Exchange
    {
        while (!$this->stopped) {
            $bytes = $this->buffer;
            $this->buffer = '';
            if ($bytes === '' && ($bytes = $this->read(self::READ)) === '') {
                return null;
            }
            $frame = $this->complete($bytes);
            if (\strlen($frame) >= self::REQUEST_HEAD && \str_starts_with($frame, self::NATIVE)) {
                $fixed = \unpack(Native::FIXED, $frame);
                if ($fixed['k'] === Native::REQUEST) {
                    return $this->exchange($frame, $fixed);
                }
            }
            $this->other(Frame::decode($frame));
        }

        return null;
    }

    public function reply(int $call, int $status, array $headers, string $body, int $flags = 0, bool $more = false): void
    {
        $context = Native::envelope(Native::REPLY, $call, $flags, $status) . Native::fields($headers);
        $this->message($context, $body, $more);
    }

    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void
    {
        $this->message(Native::envelope(Native::CHUNK, $call, $flags), $piece, $more);
    }

    public function informational(int $call, int $status, array $headers): void
    {
        $context = Native::envelope(Native::INFORMATIONAL, $call, 0, $status) . Native::fields($headers);
        $this->message($context, '', true);
    }

    public function error(int $call, Failure $failure, int $flags = 0): void
    {
        $this->message(Native::error($call, $failure, $flags), '', false);
    }

    public function extend(int $call, int $milliseconds): void
    {
        $this->message(Native::envelope(Native::EXTEND, $call) . \pack('V', $milliseconds), '', false);
    }

    public function free(int $call): void
    {
        $this->message(Native::envelope(Native::FREE, $call), '', false);
    }

    public function cancelled(int $call): bool
    {
        return false;
    }

    /** @param array<string, int> $fixed */
    private function exchange(string $frame, array $fixed): Exchange
    {
        $tables = 8 * ($fixed['h'] + $fixed['b']);
        $strings = $fixed['m'] + $fixed['i'] + $fixed['u'];
        if (
            self::REQUEST_HEAD + $tables + $strings > 16 + $fixed['o']
            || $fixed['o'] > $fixed['n']
            || $fixed['p'] + $fixed['q'] > $fixed['u']
            || $fixed['c'] === 0
        ) {
            throw new ProtocolError('a request whose lengths leave its frame');
        }
        $deadline = $fixed['l'] === Native::NO_LIMIT ? null : \hrtime(true) + $fixed['l'] * 1_000_000;

        return new Exchange($this, $fixed['c'], $fixed['t'], $deadline, Request::decode($frame, $fixed));
    }

    /** A frame that is no request, while no call is under way. */
    private function other(Frame $frame): void
    {
        if ($frame->flags & Frame::CONTROL) {
            $this->control($frame->payload);

            return;
        }
        $context = \substr($frame->payload, 0, $frame->options[0] ?? 0);
        if ($frame->flags !== Frame::NATIVE || \count($frame->options) !== 1 || \strlen($context) < 8) {
            throw new ProtocolError('a frame that is neither control nor native');
        }
        ['k' => $kind, 'f' => $flags, 'c' => $call] = \unpack('Ck/Cf/vs/Vc', $context);
        if ($kind === Native::PING) {
            $this->message(Native::envelope(Native::PONG, $call), '', false);
        } elseif ($kind !== Native::CANCEL && !($flags & Native::IGNORABLE)) {
            throw new ProtocolError(\sprintf('a message of unknown kind 0x%02x', $kind));
        }
    }

    private function control(string $payload): void
    {
        $message = \json_decode($payload, true);
        if (isset($message['stop'])) {
            $this->stopped = true;
        } elseif (isset($message['pid'])) {
            $this->send(Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], '{"pid":' . \getmypid() . '}'));
        } else {
            throw new ProtocolError('an unknown control message: ' . $payload);
        }
    }

    private function frame(int $flag): Frame
    {
        $bytes = $this->buffer;
        $this->buffer = '';
        if ($bytes === '' && ($bytes = $this->read(self::READ)) === '') {
            throw new ConnectionLost('the server closed the connection before it said anything');
        }
        $frame = Frame::decode($this->complete($bytes));
        if (!($frame->flags & $flag)) {
            throw new ProtocolError('a frame with flags ' . $frame->flags . ' where one with ' . $flag . ' was due');
        }

        return $frame;
    }

    /** Reads on until the first frame is whole; what is left over waits in the buffer. */
    private function complete(string $bytes): string
    {
        while (($length = Frame::length($bytes)) === null) {
            $bytes .= $this->more(12 - \strlen($bytes));
        }
        $have = \strlen($bytes);
        if ($have === $length) {
            return $bytes;
        }
        if ($have > $length) {
            $this->buffer = \substr($bytes, $length);

            return \substr($bytes, 0, $length);
        }
        $pieces = [$bytes];
        while ($have < $length) {
            $pieces[] = $piece = $this->more(\min($length - $have, self::READ_MORE));
            $have += \strlen($piece);
        }

        return \implode('', $pieces);
    }

    private function more(int $bytes): string
    {
        $piece = $this->read($bytes);
        if ($piece === '') {
            throw new ConnectionLost('the server closed the connection in the middle of a frame');
        }

        return $piece;
    }

    /** At least one byte, or none at the end. */
    private function read(int $bytes): string
    {
        // False: a signal came. Its handler has run by now.
        while (($piece = \stream_socket_recvfrom($this->socket, $bytes)) === false) {
        }

        return $piece;
    }

    private function message(string $context, string $body, bool $more): void
    {
        $head = \pack('vV', 0x0214, \strlen($context) + \strlen($body));
        $this->send($head . \pack('VvV', \crc32($head), $more ? Frame::MORE : 0, \strlen($context)) . $context . $body);
    }

    private function send(string $bytes): void
    {
        $sent = \stream_socket_sendto($this->socket, $bytes);
        for ($failed = 0; $sent !== \strlen($bytes); $failed++) {
            if ($failed === self::WRITES) {
                throw new ConnectionLost('the server closed the connection');
            }
            if ($sent > 0) {
                $bytes = \substr($bytes, $sent);
                $failed = 0;
            }
            $sent = @\stream_socket_sendto($this->socket, $bytes);
        }
    }
}
