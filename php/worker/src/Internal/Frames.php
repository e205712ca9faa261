<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;
use Pronghorn\Job;
use Pronghorn\Request;
use Pronghorn\TcpConnection;
use Pronghorn\TcpEvent;

/**
 * A transport that carries Goridge frames, however their bytes travel: what is announced, how calls
 * of each kind are read, and everything but replies to HTTP requests, which have ways of their own.
 */
abstract class Frames implements Transport
{
    /**
     * Unpacks a call's frame by the kind of its message, up to what has no fixed length, the
     * frame's own header included. One letter a number, because PHP makes no string for a key of
     * one letter: it halves the time. n payload length, s check sum of the frame, o length of the
     * context, k kind, f flags, h headers, c call, t accepted at, l time left, v protocol, b
     * attributes, x length of the text; a attempt, and lengths: i id or service, m name or method,
     * p pipeline, d driver; e event, and lengths: w server, u connection, r remote address, z
     * state, y certificate.
     */
    public const FIXED = [
        Native::REQUEST => 'x2/Vn/Vs/x2/Vo/Ck/Cf/vh/Vc/Pt/Vl/vv/vb/Vx',
        Native::RAW => 'x2/Vn/Vs/x2/Vo/Ck/Cf/x2/Vc/Pt/Vl',
        Native::JOB => 'x2/Vn/Vs/x2/Vo/Ck/Cf/vh/Vc/Pt/Vl/Va/Vi/Vm/Vp/Vd',
        Native::GRPC => 'x2/Vn/Vs/x2/Vo/Ck/Cf/vh/Vc/Pt/Vl/Vi/Vm',
        Native::TCP => 'x2/Vn/Vs/x2/Vo/Ck/Cf/ve/Vc/Pt/Vl/Vw/Vu/Vr/Vz/Vy',
    ];
    /** How many bytes that takes. */
    private const LENGTHS = [
        Native::REQUEST => Native::FRAME + Native::REQUEST_HEAD,
        Native::RAW => Native::FRAME + Native::CALL_HEAD,
        Native::JOB => Native::FRAME + Native::JOB_HEAD,
        Native::GRPC => Native::FRAME + Native::GRPC_HEAD,
        Native::TCP => Native::FRAME + Native::TCP_HEAD,
    ];

    /** Stands for a kind where a frame is a control frame. */
    private const CONTROL = 0;
    /** The first two bytes of every native frame: version 1, one option; the codec's flag. */
    protected const NATIVE = "\x14\x02";
    /** Of this package. */
    protected const RELEASE = '0.2.0';

    protected bool $stopped = false;
    /** The last call whose client left, maybe long answered. */
    protected int $gone = 0;
    /** The number of the last question. */
    protected int $asked = 0;

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

    public function replyRaw(int $call, string $payload, int $flags = 0): void
    {
        $this->message(Native::REPLY, $call, $flags, 0, '', $payload);
    }

    public function beginRaw(int $call, string $piece): void
    {
        $this->message(Native::REPLY, $call, 0, 0, '', $piece, true);
    }

    public function replyJob(int $call, int $outcome, int $delay, string $body, int $flags = 0): void
    {
        $context = $outcome === Native::JOB_RETRY ? \pack('P', $delay) : '';
        $this->message(Native::REPLY, $call, $flags, $outcome, $context, $body);
    }

    public function replyTcp(int $call, bool $close, ?string $state, string $body, int $flags = 0): void
    {
        $small = ($close ? Native::TCP_CLOSE : 0) | ($state === null ? 0 : Native::TCP_STATE);
        $this->message(Native::REPLY, $call, $flags, $small, $state ?? '', $body);
    }

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

    public function route(int $call, string $name): void
    {
        $this->message(Native::ROUTE, $call, Native::IGNORABLE, 0, $name);
    }

    public function log(LogRecord $record): void
    {
        // Its number means nothing, and may not be 0.
        $this->message(Native::LOG, 1, Native::IGNORABLE, $record->level, $record->payload());
    }

    public function counts(string $changes): void
    {
        $this->message(Native::COUNTS, 1, Native::IGNORABLE, 0, $changes);
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
     * @param array<array-key, scalar|\Stringable|list<scalar|\Stringable>> $headers by name, one
     *     value or several
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

    /** Whether messages of this kind begin a call. */
    protected static function isCall(int $kind): bool
    {
        return isset(self::FIXED[$kind]);
    }

    /**
     * @return ?array<string, int> the numbers of a call's heads, if these bytes begin with a call
     */
    protected function heads(string $bytes): ?array
    {
        $kind = \ord($bytes[Native::FRAME] ?? "\0");
        if (\strlen($bytes) < (self::LENGTHS[$kind] ?? \PHP_INT_MAX) || !\str_starts_with($bytes, self::NATIVE)) {
            return null;
        }
        $fixed = \unpack(self::FIXED[$kind], $bytes);

        return \crc32(\substr($bytes, 0, 6)) === $fixed['s'] ? $fixed : null;
    }

    /** @param array<string, int> $fixed */
    protected function exchange(string $frame, array $fixed): Exchange
    {
        $deadline = $fixed['l'] === Native::NO_LIMIT ? null : \hrtime(true) + $fixed['l'] * 1_000_000;

        return match ($fixed['k']) {
            Native::REQUEST => $this->httpExchange($frame, $fixed, $deadline),
            Native::JOB => $this->jobExchange($frame, $fixed, $deadline),
            Native::GRPC => $this->grpcExchange($frame, $fixed, $deadline),
            Native::TCP => $this->tcpExchange($frame, $fixed, $deadline),
            default => $this->rawExchange($frame, $fixed, $deadline),
        };
    }

    /** @param array<string, int> $fixed */
    private function httpExchange(string $frame, array $fixed, ?int $deadline): HttpExchange
    {
        $head = self::LENGTHS[Native::REQUEST] + 8 * $fixed['b'] + $fixed['x'];
        if ($head > Native::FRAME + $fixed['o'] || $fixed['o'] > $fixed['n'] || $fixed['c'] === 0) {
            throw new ProtocolError('a request whose lengths leave its frame');
        }
        $body = $fixed['f'] & Native::BODY_STREAM ? new BodyReader($this, $fixed['c']) : null;

        return new HttpExchange($this, $fixed['c'], $deadline, Request::decode($frame, $fixed, $body), $body);
    }

    /** @param array<string, int> $fixed */
    private function rawExchange(string $frame, array $fixed, ?int $deadline): RawExchange
    {
        $known = Native::DEVELOPMENT | Native::TIMED;
        // Its bytes are in the frame, however many.
        if ($fixed['o'] !== Native::CALL_HEAD || $fixed['c'] === 0 || $fixed['f'] & ~$known) {
            throw new ProtocolError('a raw call whose lengths leave its frame');
        }

        return new RawExchange($this, $fixed['c'], $deadline, $fixed['t'], \substr($frame, self::LENGTHS[Native::RAW]));
    }

    /** @param array<string, int> $fixed */
    private function jobExchange(string $frame, array $fixed, ?int $deadline): JobExchange
    {
        $table = self::LENGTHS[Native::JOB];
        $at = $table + 8 * $fixed['h'];
        $end = Native::FRAME + $fixed['o'];
        $known = Native::DEVELOPMENT | Native::TIMED | Native::WANTS_RESULT;
        if ($at > $end || $fixed['o'] > $fixed['n'] || $fixed['c'] === 0 || $fixed['f'] & ~$known) {
            throw new ProtocolError('a job whose lengths leave its frame');
        }
        $texts = [];
        foreach (['i', 'm', 'p', 'd'] as $length) {
            $texts[] = \substr($frame, $at, $fixed[$length]);
            $at += $fixed[$length];
        }
        $headers = self::jobHeaders($frame, $table, $fixed['h'], $at);
        if ($at !== $end) {
            throw new ProtocolError('a job whose lengths leave its frame');
        }
        [$id, $name, $pipeline, $driver] = $texts;
        $job = new Job($name, \substr($frame, $end), $headers, $id, $pipeline, $driver, $fixed['a']);

        return new JobExchange(
            $this,
            $fixed['c'],
            $deadline,
            $fixed['t'],
            $job,
            ($fixed['f'] & Native::WANTS_RESULT) !== 0,
        );
    }

    /** @param array<string, int> $fixed */
    private function grpcExchange(string $frame, array $fixed, ?int $deadline): GrpcExchange
    {
        $table = self::LENGTHS[Native::GRPC];
        $at = $table + 8 * $fixed['h'];
        $end = Native::FRAME + $fixed['o'];
        $known = Native::DEVELOPMENT | Native::TIMED | Native::BODY_STREAM | Native::STREAMS;
        if ($at > $end || $fixed['o'] > $fixed['n'] || $fixed['c'] === 0 || $fixed['f'] & ~$known) {
            throw new ProtocolError('a gRPC call whose lengths leave its frame');
        }
        $service = \substr($frame, $at, $fixed['i']);
        $method = \substr($frame, $at += $fixed['i'], $fixed['m']);
        $at += $fixed['m'];
        $metadata = self::jobHeaders($frame, $table, $fixed['h'], $at);
        if ($at !== $end) {
            throw new ProtocolError('a gRPC call whose lengths leave its frame');
        }
        $body = $fixed['f'] & Native::BODY_STREAM ? new BodyReader($this, $fixed['c']) : null;

        return new GrpcExchange(
            $this,
            $fixed['c'],
            $deadline,
            $fixed['t'],
            $service,
            $method,
            $metadata,
            $body ?? \substr($frame, $end),
            ($fixed['f'] & Native::STREAMS) !== 0,
        );
    }

    /**
     * @param int $at where their strings begin; afterwards, where they end
     * @return array<array-key, non-empty-list<string>>
     */
    private static function jobHeaders(string $frame, int $table, int $count, int &$at): array
    {
        $headers = [];
        if ($count === 0) {
            return $headers;
        }
        // Two for each, from 1 on.
        $lengths = \unpack('V' . 2 * $count, $frame, $table);
        for ($i = 1; $i < 2 * $count; $i += 2) {
            $name = $lengths[$i];
            $value = $lengths[$i + 1];
            $headers[\substr($frame, $at, $name)][] = \substr($frame, $at + $name, $value);
            $at += $name + $value;
        }

        return $headers;
    }

    /** @param array<string, int> $fixed */
    private function tcpExchange(string $frame, array $fixed, ?int $deadline): TcpExchange
    {
        $at = self::LENGTHS[Native::TCP];
        $end = Native::FRAME + $fixed['o'];
        $known = Native::DEVELOPMENT | Native::TIMED | Native::TLS;
        $event = TcpEvent::tryFrom($fixed['e']);
        $lengths = $fixed['w'] + $fixed['u'] + $fixed['r'] + $fixed['z'] + $fixed['y'];
        $isWhole = $at + $lengths === $end && $fixed['o'] <= $fixed['n'];
        if (!$isWhole || $event === null || $fixed['c'] === 0 || $fixed['f'] & ~$known) {
            throw new ProtocolError('an event of a connection whose lengths leave its frame');
        }
        $texts = [];
        foreach (['w', 'u', 'r', 'z', 'y'] as $length) {
            $texts[] = \substr($frame, $at, $fixed[$length]);
            $at += $fixed[$length];
        }
        [$server, $id, $remote, $state, $certificate] = $texts;
        $connection = new TcpConnection(
            $event,
            \substr($frame, $end),
            $id,
            $server,
            $remote,
            ($fixed['f'] & Native::TLS) !== 0,
            TcpConnection::unpackState($state),
            $certificate,
        );

        return new TcpExchange($this, $fixed['c'], $deadline, $fixed['t'], $connection, $state);
    }

    /**
     * What the worker says of itself.
     *
     * @param non-empty-list<Kind> $kinds
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
        ] + self::settings() + $more, \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES));
    }

    /**
     * Proves that this process has the pool's settings: the last option of its command line, which
     * nothing can change later. A php.ini may forbid the function.
     *
     * @return array<string, string>
     */
    private static function settings(): array
    {
        return \function_exists('get_cfg_var')
            ? ['settings' => (string) \get_cfg_var('pronghorn.settings')]
            : [];
    }

    /**
     * A frame that is no request. A piece of a body, or an answer, was asked for by a call that is
     * over.
     */
    protected function handle(Frame $frame): void
    {
        [$kind, $call, $flags] = $this->envelope($frame);
        if ($kind === self::CONTROL) {
            $this->control($frame->payload);
        } elseif ($kind === Native::PING) {
            $this->message(Native::PONG, $call);
        } elseif ($kind === Native::CANCEL) {
            $this->gone = $call;
        } elseif ($kind !== Native::BODY && $kind !== Native::ANSWER && !($flags & Native::IGNORABLE)) {
            throw new ProtocolError(\sprintf('a message of kind 0x%02x that makes no sense here', $kind));
        }
    }

    /** @return array{int, int, int, int} kind, call, flags and the small number */
    protected function envelope(Frame $frame): array
    {
        if ($frame->flags & Frame::CONTROL) {
            return [self::CONTROL, 0, 0, 0];
        }
        $length = \count($frame->options) === 1 ? $frame->options[0] : 0;
        if ($frame->flags !== Frame::NATIVE || $length < Native::ENVELOPE || $length > \strlen($frame->payload)) {
            throw new ProtocolError('a frame that is neither control nor native');
        }
        ['k' => $kind, 'f' => $flags, 's' => $small, 'c' => $call] = \unpack('Ck/Cf/vs/Vc', $frame->payload);

        return [$kind, $call, $flags, $small];
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
