<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/**
 * Over pipes, in plain PHP. The worker announces itself this way even if it goes on over shared
 * memory.
 */
final class Relay extends Frames
{
    /** Holds any request without a body; what is longer takes a second read. */
    private const READ = 8192;
    /** One read of a long frame. PHP allocates this much before it knows how much there is. */
    private const READ_MORE = 256 * 1024;
    /**
     * Bytes of a body that are copied behind their head, so that one write is enough. A longer one
     * costs a second write.
     */
    private const COPIED = 256 * 1024;
    private const WORD = 0x0214;
    /** Messages that end a reply if nothing more follows. */
    private const ENDS = [Native::REPLY => true, Native::CHUNK => true, Native::ERROR => true];
    /** What was read and not yet used; begins with a frame. */
    private string $buffer = '';
    /** Whether a call is under way. */
    private bool $hasCall = false;

    /** @param array<string, mixed> $announced what is said of this worker besides */
    public function __construct(private readonly Pipes $pipes, private readonly array $announced = [])
    {
    }

    /**
     * Announces this worker, and returns when the server has been told.
     *
     * @param non-empty-list<Kind> $kinds of calls it answers
     * @return bool whether the server answers what a worker asks
     */
    public function announce(array $kinds): bool
    {
        $hello = \json_decode($this->greeting()->payload, true);
        if (!isset($hello['native'])) {
            throw new ProtocolError('the server does not offer the native codec');
        }
        $this->write(self::announcement($kinds, $this->announced));

        return ($hello['methods'] ?? false) === true;
    }

    public function next(): ?Exchange
    {
        while (!$this->stopped) {
            $bytes = $this->buffer;
            $this->buffer = '';
            if ($bytes === '' && ($bytes = $this->pipes->read(self::READ)) === '') {
                return null;
            }
            // Almost always this is one call and nothing else, and then one unpack() is enough for
            // both of its heads.
            $fixed = $this->heads($bytes);
            if ($fixed === null || \strlen($bytes) !== Native::FRAME + $fixed['n']) {
                $bytes = $this->complete($bytes);
                $fixed = $this->heads($bytes);
            }
            if ($fixed !== null) {
                $this->hasCall = true;

                return $this->exchange($bytes, $fixed);
            }
            $this->handle(Frame::decode($bytes));
        }

        return null;
    }

    public function reply(
        int $call,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
        bool $more = false,
    ): void {
        $this->message(Native::REPLY, $call, $flags, $status, self::fields($headers), $body, $more);
    }

    public function ask(string $method, string $argument): ?array
    {
        if (!$this->hasCall) {
            return null;
        }
        $this->asked = $this->asked % 0xFFFFFFFF + 1;
        $this->message(Native::ASK, $this->asked, 0, 0, $method, $argument);
        for (;;) {
            $frame = $this->frame();
            [$kind, $of, , $small] = $this->envelope($frame);
            if ($kind === Native::ANSWER && $of === $this->asked) {
                return [$small === Native::ANSWER_RESULT, \substr($frame->payload, $frame->options[0])];
            }
            $this->handle($frame);
        }
    }

    public function cancelled(int $call): bool
    {
        if ($this->pipes->isReadable()) {
            $this->buffer .= $this->more(self::READ);
        }
        while (($length = Frame::length($this->buffer)) !== null && $length <= \strlen($this->buffer)) {
            $frame = Frame::decode(\substr($this->buffer, 0, $length));
            if (self::isCall($this->envelope($frame)[0])) {
                // Sent too early; it waits.
                break;
            }
            $this->buffer = \substr($this->buffer, $length);
            $this->handle($frame);
        }

        return $this->gone === $call;
    }

    protected function frame(): Frame
    {
        $bytes = $this->buffer;
        $this->buffer = '';

        return Frame::decode($this->complete($bytes === '' ? $this->more(self::READ_MORE) : $bytes));
    }

    /** What the server says first. */
    private function greeting(): Frame
    {
        $frame = Frame::decode($this->complete($this->more(self::READ)));
        if (!($frame->flags & Frame::CONTROL)) {
            throw new ProtocolError('the server began with something else than a control frame');
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
        $piece = $this->pipes->read($bytes);
        if ($piece === '') {
            throw new ConnectionLost('the server closed the connection');
        }

        return $piece;
    }

    protected function write(string $frame): void
    {
        $this->pipes->write($frame);
    }

    protected function message(
        int $kind,
        int $call,
        int $flags = 0,
        int $small = 0,
        string $context = '',
        string $body = '',
        bool $more = false,
    ): void {
        if ($kind === Native::FREE || (!$more && isset(self::ENDS[$kind]))) {
            $this->hasCall = ($flags & Native::BUSY) !== 0;
        }
        $length = Native::ENVELOPE + \strlen($context);
        $head = \pack('vV', self::WORD, $length + \strlen($body));
        $sum = \crc32($head);
        $head .= \pack('VvVCCvV', $sum, $more ? Frame::MORE : 0, $length, $kind, $flags, $small, $call) . $context;
        if (\strlen($body) <= self::COPIED) {
            $this->pipes->write($head . $body);
        } else {
            $this->pipes->write($head);
            $this->pipes->write($body);
        }
    }
}
