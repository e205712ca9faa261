<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;
use Pronghorn\Request;

/**
 * A transport that carries Goridge frames, however their bytes travel: what is announced, and everything but requests
 * and replies, which have ways of their own.
 */
abstract class Frames implements Transport
{
    /**
     * Unpacks a request's frame up to its tables, the frame's own header included. One letter a number, because PHP
     * makes no string for a key of one letter: it halves the time. n payload length, s check sum of the frame, o length
     * of the context, k kind, f flags, h headers, c call, t accepted at, l time left, v protocol, b attributes, x
     * length of the text.
     */
    public const FIXED = 'x2/Vn/Vs/x2/Vo/Ck/Cf/vh/Vc/Pt/Vl/vv/vb/Vx';

    /** Stands for a kind where a frame is a control frame. */
    private const CONTROL = 0;
    /** The first two bytes of every native frame: version 1, one option; the codec's flag. */
    protected const NATIVE = "\x14\x02";
    /** Of this package. */
    protected const RELEASE = '0.1.0';
    /** A frame's header with the fixed part of a request. */
    private const REQUEST_HEAD = Native::FRAME + Native::REQUEST_HEAD;

    protected bool $stopped = false;
    /** The last call whose client left, maybe long answered. */
    protected int $gone = 0;

    /**
     * Sends one message.
     *
     * @param string $context what follows the envelope
     */
    abstract protected function message(
        int $kind,
        int $call,
        int $flags = 0,
        int $small = 0,
        string $context = '',
        string $body = '',
        bool $more = false,
    ): void;

    /** Sends a frame that is no message. */
    abstract protected function write(string $frame): void;

    /**
     * Waits for a frame, in the middle of a call.
     *
     * @throws ConnectionLost
     * @throws ProtocolError
     */
    abstract protected function frame(): Frame;

    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void
    {
        $this->message(Native::CHUNK, $call, $flags, 0, '', $piece, $more);
    }

    public function informational(int $call, int $status, array $headers): void
    {
        $this->message(Native::INFORMATIONAL, $call, 0, $status, self::fields($headers), '', true);
    }

    public function error(int $call, Failure $failure, int $flags = 0): void
    {
        $this->message(Native::ERROR, $call, $flags, 0, $failure->encode());
    }

    public function remark(Failure $failure): void
    {
        // Its number means nothing, and may not be 0.
        $this->message(Native::REMARK, 1, Native::IGNORABLE, 0, $failure->encode());
    }

    public function extend(int $call, int $milliseconds): void
    {
        $this->message(Native::EXTEND, $call, 0, 0, \pack('V', $milliseconds));
    }

    public function free(int $call): void
    {
        $this->message(Native::FREE, $call);
    }

    public function body(int $call, int $most): array
    {
        if ($this->gone !== $call) {
            $this->message(Native::WANT, $call, 0, 0, \pack('V', $most));
        }
        while ($this->gone !== $call) {
            $frame = $this->frame();
            [$kind, $of] = $this->envelope($frame);
            if ($kind === Native::BODY && $of === $call) {
                return [\substr($frame->payload, $frame->options[0]), ($frame->stream & Frame::MORE) === 0];
            }
            $this->handle($frame);
        }

        throw new ClientGone('The client left before its request was complete.');
    }

    /**
     * The count, the table and the strings of header fields.
     *
     * @param array<array-key, scalar|\Stringable|list<scalar|\Stringable>> $headers by name, one value or several
     */
    protected static function fields(array $headers): string
    {
        if ($headers === []) {
            return "\0\0\0\0";
        }
        $lengths = [];
        $strings = '';
        foreach ($headers as $name => $values) {
            foreach (\is_array($values) ? $values : [$values] as $value) {
                $value = (string) $value;
                $lengths[] = \strlen((string) $name);
                $lengths[] = \strlen($value);
                $strings .= $name . $value;
            }
        }

        return \pack('V*', \count($lengths) >> 1, ...$lengths) . $strings;
    }

    /** @return ?array<string, int> the numbers of a request's heads, if these bytes begin with a request */
    protected function request(string $bytes): ?array
    {
        if (\strlen($bytes) < self::REQUEST_HEAD || !\str_starts_with($bytes, self::NATIVE)) {
            return null;
        }
        $fixed = \unpack(self::FIXED, $bytes);

        return $fixed['k'] === Native::REQUEST && \crc32(\substr($bytes, 0, 6)) === $fixed['s'] ? $fixed : null;
    }

    /** @param array<string, int> $fixed */
    protected function exchange(string $frame, array $fixed): Exchange
    {
        $head = self::REQUEST_HEAD + 8 * $fixed['b'] + $fixed['x'];
        if ($head > Native::FRAME + $fixed['o'] || $fixed['o'] > $fixed['n'] || $fixed['c'] === 0) {
            throw new ProtocolError('a request whose lengths leave its frame');
        }
        $deadline = $fixed['l'] === Native::NO_LIMIT ? null : \hrtime(true) + $fixed['l'] * 1_000_000;
        $body = $fixed['f'] & Native::BODY_STREAM ? new BodyReader($this, $fixed['c']) : null;
        $request = Request::decode($frame, $fixed, $body);

        return new Exchange($this, $fixed['c'], $deadline, $request, $body);
    }

    /**
     * What the worker says of itself.
     *
     * @param non-empty-list<string> $kinds
     * @param array<string, mixed> $more
     */
    protected static function announcement(array $kinds, array $more = []): string
    {
        return Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], \json_encode([
            'pid' => \getmypid(),
            'codec' => 'native',
            'version' => Native::VERSION,
            'kinds' => $kinds,
            'sdk' => 'pronghorn/worker ' . self::RELEASE,
            'php' => \PHP_VERSION,
        ] + $more, \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES));
    }

    /** A frame that is no request. A piece of a body was asked for by a call that is over. */
    protected function handle(Frame $frame): void
    {
        [$kind, $call, $flags] = $this->envelope($frame);
        if ($kind === self::CONTROL) {
            $this->control($frame->payload);
        } elseif ($kind === Native::PING) {
            $this->message(Native::PONG, $call);
        } elseif ($kind === Native::CANCEL) {
            $this->gone = $call;
        } elseif ($kind !== Native::BODY && !($flags & Native::IGNORABLE)) {
            throw new ProtocolError(\sprintf('a message of kind 0x%02x that makes no sense here', $kind));
        }
    }

    /** @return array{int, int, int} kind, call and flags */
    protected function envelope(Frame $frame): array
    {
        if ($frame->flags & Frame::CONTROL) {
            return [self::CONTROL, 0, 0];
        }
        $length = \count($frame->options) === 1 ? $frame->options[0] : 0;
        if ($frame->flags !== Frame::NATIVE || $length < Native::ENVELOPE || $length > \strlen($frame->payload)) {
            throw new ProtocolError('a frame that is neither control nor native');
        }
        ['k' => $kind, 'f' => $flags, 'c' => $call] = \unpack('Ck/Cf/vs/Vc', $frame->payload);

        return [$kind, $call, $flags];
    }

    private function control(string $payload): void
    {
        $message = \json_decode($payload, true);
        if (isset($message['stop'])) {
            $this->stopped = true;
        } elseif (isset($message['pid'])) {
            $this->write(Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], '{"pid":' . \getmypid() . '}'));
        } else {
            throw new ProtocolError('an unknown control message: ' . $payload);
        }
    }
}
