<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;
use Pronghorn\Request;

/**
 * The transport of a plain PHP worker: Goridge frames over two pipes, one for each direction.
 *
 * One system call to read a request and one to write its reply, as long as they are pipes: on a socket PHP would poll
 * before each read.
 */
final class Relay implements Transport
{
    /** Holds any request without a body; what is longer takes a second read. */
    private const READ = 8192;
    /** One read of a long frame. PHP allocates this much before it knows how much there is. */
    private const READ_MORE = 256 * 1024;
    /**
     * Bytes of a body that are copied behind their head, so that one write is enough. A longer one costs a second
     * write.
     */
    private const COPIED = 256 * 1024;
    /** A frame's header with one option. */
    private const FRAME = 16;
    /** The same with the fixed part of a request. */
    private const REQUEST_HEAD = self::FRAME + Native::REQUEST_HEAD;
    /** The first two bytes of every native frame: version 1, one option; the codec's flag. */
    private const NATIVE = "\x14\x02";
    private const WORD = 0x0214;
    /** Reads or writes in a row that may fail by signals before the server counts as gone. */
    private const TRIES = 16;
    /** Stands for a kind where a frame is a control frame. */
    private const CONTROL = 0;

    /** @var resource */
    private $input;
    /** @var resource */
    private $output;
    /** What was read and not yet used; begins with a frame. */
    private string $buffer = '';
    private bool $stopped = false;
    /** The last call whose client left, maybe long answered. */
    private int $gone = 0;
    private readonly bool $hasSignals;

    /**
     * @param resource $input from the server
     * @param resource $output to the server
     */
    public function __construct($input, $output)
    {
        $this->input = $input;
        $this->output = $output;
        \stream_set_blocking($input, true);
        \stream_set_blocking($output, true);
        // PHP's own would only be copied from: what is read is a frame and wanted at once.
        \stream_set_read_buffer($input, 0);
        $this->hasSignals = \function_exists('pcntl_async_signals');
    }

    public function announce(array $kinds): void
    {
        $hello = \json_decode($this->greeting()->payload, true);
        if (!isset($hello['native'])) {
            throw new ProtocolError('the server does not offer the native codec');
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
            // Almost always this is one request and nothing else, and then one unpack() is enough for both of its
            // heads.
            $fixed = $this->request($bytes);
            if ($fixed === null || \strlen($bytes) !== self::FRAME + $fixed['n']) {
                $bytes = $this->complete($bytes);
                $fixed = $this->request($bytes);
            }
            if ($fixed !== null) {
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
        $this->message(Native::REPLY, $call, $flags, $status, Native::fields($headers), $body, $more);
    }

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

    public function body(int $call, int $most): array
    {
        if ($this->gone !== $call) {
            $this->message(Native::WANT, $call, 0, 0, \pack('V', $most));
        }
        while ($this->gone !== $call) {
            $bytes = $this->buffer;
            $this->buffer = '';
            $frame = Frame::decode($this->complete($bytes === '' ? $this->more(self::READ_MORE) : $bytes));
            [$kind, $of] = $this->envelope($frame);
            if ($kind === Native::BODY && $of === $call) {
                return [\substr($frame->payload, $frame->options[0]), ($frame->stream & Frame::MORE) === 0];
            }
            $this->handle($frame);
        }

        throw new ClientGone('The client left before its request was complete.');
    }

    public function cancelled(int $call): bool
    {
        if ($this->readable(0)) {
            $this->buffer .= $this->more(self::READ);
        }
        while (($length = Frame::length($this->buffer)) !== null && $length <= \strlen($this->buffer)) {
            $frame = Frame::decode(\substr($this->buffer, 0, $length));
            if ($this->envelope($frame)[0] === Native::REQUEST) {
                // Sent too early; it waits.
                break;
            }
            $this->buffer = \substr($this->buffer, $length);
            $this->handle($frame);
        }

        return $this->gone === $call;
    }

    /** @return ?array<string, int> the numbers of a request's heads, if these bytes begin with a request */
    private function request(string $bytes): ?array
    {
        if (\strlen($bytes) < self::REQUEST_HEAD || !\str_starts_with($bytes, self::NATIVE)) {
            return null;
        }
        $fixed = \unpack(Native::FIXED, $bytes);

        return $fixed['k'] === Native::REQUEST && \crc32(\substr($bytes, 0, 6)) === $fixed['s'] ? $fixed : null;
    }

    /** @param array<string, int> $fixed */
    private function exchange(string $frame, array $fixed): Exchange
    {
        $head = self::REQUEST_HEAD + 8 * $fixed['b'] + $fixed['x'];
        if ($head > self::FRAME + $fixed['o'] || $fixed['o'] > $fixed['n'] || $fixed['c'] === 0) {
            throw new ProtocolError('a request whose lengths leave its frame');
        }
        $deadline = $fixed['l'] === Native::NO_LIMIT ? null : \hrtime(true) + $fixed['l'] * 1_000_000;

        $body = $fixed['f'] & Native::BODY_STREAM ? new BodyReader($this, $fixed['c']) : null;
        $request = Request::decode($frame, $fixed, $body);

        return new Exchange($this, $fixed['c'], $fixed['t'], $deadline, $request, $body);
    }

    /** A frame that is no request. A piece of a body was asked for by a call that is over. */
    private function handle(Frame $frame): void
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
    private function envelope(Frame $frame): array
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
            $this->send(Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], '{"pid":' . \getmypid() . '}'));
        } else {
            throw new ProtocolError('an unknown control message: ' . $payload);
        }
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
        $piece = $this->read($bytes);
        if ($piece === '') {
            throw new ConnectionLost('the server closed the connection');
        }

        return $piece;
    }

    /** At least one byte, or none at the end. */
    private function read(int $bytes): string
    {
        if ($this->hasSignals && \pcntl_async_signals()) {
            // A read goes on after a signal without PHP's handler having run, select doesn't: then it answers no.
            while (!$this->readable(null)) {
            }
        }
        // Nothing, and not at the end: a signal. More than a few in a row: something is broken.
        for ($tries = 0; $tries < self::TRIES; $tries++) {
            $piece = @\fread($this->input, $bytes);
            if (($piece !== '' && $piece !== false) || \feof($this->input)) {
                return (string) $piece;
            }
        }

        throw new ConnectionLost('the connection with the server is broken');
    }

    /** @param ?int $seconds to wait, null: until a signal comes */
    private function readable(?int $seconds): bool
    {
        $read = [$this->input];
        $none = null;

        // The warning is about a signal.
        return @\stream_select($read, $none, $none, $seconds) > 0;
    }

    private function message(
        int $kind,
        int $call,
        int $flags = 0,
        int $small = 0,
        string $context = '',
        string $body = '',
        bool $more = false,
    ): void {
        $length = Native::ENVELOPE + \strlen($context);
        $head = \pack('vV', self::WORD, $length + \strlen($body));
        $sum = \crc32($head);
        $head .= \pack('VvVCCvV', $sum, $more ? Frame::MORE : 0, $length, $kind, $flags, $small, $call) . $context;
        if (\strlen($body) <= self::COPIED) {
            $this->send($head . $body);
        } else {
            $this->send($head);
            $this->send($body);
        }
    }

    private function send(string $bytes): void
    {
        for ($tries = 0; $tries < self::TRIES; $tries++) {
            $sent = @\fwrite($this->output, $bytes);
            if ($sent === \strlen($bytes)) {
                return;
            }
            if ($sent > 0) {
                // Broken off by a signal.
                $bytes = \substr($bytes, $sent);
                $tries = 0;
            }
        }

        throw new ConnectionLost('the server closed the connection');
    }
}
