<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/**
 * A transport that carries Goridge frames, however their bytes travel: what is announced, and everything but requests
 * and replies, which have ways of their own.
 */
abstract class Frames implements Transport
{
    /** Stands for a kind where a frame is a control frame. */
    private const CONTROL = 0;

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

    public function chunk(int $call, string $piece, int $flags = 0, bool $more = false): void
    {
        $this->message(Native::CHUNK, $call, $flags, 0, '', $piece, $more);
    }

    public function informational(int $call, int $status, array $headers): void
    {
        $this->message(Native::INFORMATIONAL, $call, 0, $status, Native::fields($headers), '', true);
    }

    public function error(int $call, Failure $failure, int $flags = 0): void
    {
        $this->message(Native::ERROR, $call, $flags, 0, Native::failure($failure));
    }

    public function extend(int $call, int $milliseconds): void
    {
        $this->message(Native::EXTEND, $call, 0, 0, \pack('V', $milliseconds));
    }

    public function free(int $call): void
    {
        $this->message(Native::FREE, $call);
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
            'sdk' => 'pronghorn/worker ' . Native::SDK,
            'php' => \PHP_VERSION,
        ] + $more, \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES));
    }

    /** A frame that is no request. */
    protected function handle(Frame $frame): void
    {
        [$kind, $call, $flags] = $this->envelope($frame);
        if ($kind === self::CONTROL) {
            $this->control($frame->payload);
        } elseif ($kind === Native::PING) {
            $this->message(Native::PONG, $call);
        } elseif ($kind === Native::CANCEL) {
            $this->gone = $call;
        } elseif (!($flags & Native::IGNORABLE)) {
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
