<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;
use Pronghorn\Request;
use Pronghorn\Response;

/**
 * Over memory that is shared with the server, by the extension: it makes calls of what lies there,
 * and writes replies where they are read. No system call while both sides are awake.
 */
final class Ring extends Frames
{
    /** The descriptors of the box, and of the page and the bell of its thread: `5,6,7`. */
    public const OFFER = 'PRONGHORN_RING';
    /** With those of the pipes behind. */
    public const NUMBERS = '/^(\d+),(\d+),(\d+) (\d+),(\d+)$/D';

    /** Of the extension, as this package knows it. */
    public const API = 18;
    /** Milliseconds after which a worker that waits looks whether the server still lives. */
    private const LOOK_AFTER = 5000;

    /**
     * How a handler ended: its answer is sent, or it returned something, threw it, or called `exit`
     * somewhere.
     */
    public const ANSWERED = 0;
    public const RETURNED = 1;
    public const THREW = 2;
    public const EXITED = 3;

    /** What the exchanges of calls are clones of. */
    private readonly HttpExchange $http;
    private readonly RawExchange $raw;
    private readonly GrpcExchange $grpc;
    private readonly Response $response;

    private function __construct()
    {
        $this->http = new HttpExchange($this, 0, null, Request::blank());
        $this->raw = new RawExchange($this, 0, null, 0, '');
        $this->grpc = new GrpcExchange($this, 0, null, 0, '', '', [], '', false);
        $this->response = new Response();
    }

    /**
     * Takes what the server offers, where the extension is loaded.
     *
     * @param string $pipes the descriptors of the two pipes, `3,4`
     * @param array<string, mixed> $announced gets what the server is told of it
     */
    public static function take(string $pipes, array &$announced, int $lookAfter = self::LOOK_AFTER): ?self
    {
        $offered = \getenv(self::OFFER);
        Boot::forget(self::OFFER);
        if ($offered === false || !\extension_loaded('pronghorn')) {
            return null;
        }
        $ring = new self();
        $why = $ring->attach($offered, $pipes, $lookAfter);
        $announced = $why === null
            ? ['ring' => true, 'deadline_signal' => \Pronghorn\Internal\DEADLINE_SIGNAL]
            : ['ring' => false, 'why' => $why];

        return $why === null ? $ring : null;
    }

    public function next(): ?Exchange
    {
        while (!$this->stopped) {
            $next = \Pronghorn\Internal\ring_next();
            if (!\is_string($next)) {
                return $next;
            }
            $exchange = $this->other($next);
            if ($exchange !== null) {
                return $exchange;
            }
        }

        return null;
    }

    /**
     * Lets the extension call handlers for one call after another, until one is left to do
     * something for: one that nobody has answered, because the extension makes no exchange of it or
     * its kind has no handler, or one whose handler has ended, with how it did and what came of it.
     *
     * @param array<value-of<Kind>, Handler> $handlers
     * @param \Closure $failed gets the exchange and what was thrown by something that its call has
     *     deferred; returns whether this process takes no other call
     * @return Exchange|array{Exchange, self::ANSWERED|self::RETURNED|self::THREW|self::EXITED, mixed}|null
     */
    public function serve(array $handlers, \Closure $failed, Output $output): Exchange|array|null
    {
        $this->http->handler = $handlers[Kind::Http->value] ?? null;
        $this->raw->handler = $handlers[Kind::Raw->value] ?? null;
        $this->grpc->handler = $handlers[Kind::Grpc->value] ?? null;
        $templates = [$this->http, $this->raw, $this->grpc];
        $functions = \array_map(fn (Exchange $of): ?\Closure => $of->handler?->function(), $templates);
        while (!$this->stopped) {
            $next = \Pronghorn\Internal\ring_serve(...[...$functions, $failed, $output, $this->response]);
            if (!\is_string($next)) {
                return $next;
            }
            $exchange = $this->other($next);
            if ($exchange !== null) {
                return $exchange;
            }
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
        if (!\Pronghorn\Internal\ring_reply($call, $status, $headers, $body, $flags, $more)) {
            throw self::lost();
        }
    }

    public function ask(string $method, string $argument): ?array
    {
        $number = $this->asked = $this->asked % 0xFFFFFFFF + 1;
        $sent = \Pronghorn\Internal\ring_ask($number, $method, $argument);
        if ($sent === false) {
            return null;
        }
        $answer = $sent ? \Pronghorn\Internal\ring_answer($number) : null;
        while (\is_string($answer)) {
            Frame::length($answer);
            $this->handle(Frame::decode($answer));
            $answer = \Pronghorn\Internal\ring_answer($number);
        }

        return $answer ?? throw self::lost();
    }

    public function cancelled(int $call): bool
    {
        while (($frame = \Pronghorn\Internal\ring_peek()) !== null) {
            $this->handle(Frame::decode($frame));
        }

        return $this->gone === $call;
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
        if (!\Pronghorn\Internal\ring_message($kind, $call, $flags, $small, $context, $body, $more)) {
            throw self::lost();
        }
    }

    protected function frame(): Frame
    {
        $next = \Pronghorn\Internal\ring_next();
        if ($next === null) {
            throw self::lost();
        }
        if ($next instanceof Exchange) {
            throw new ProtocolError('a call in the middle of another');
        }
        Frame::length($next);

        return Frame::decode($next);
    }

    protected function write(string $frame): void
    {
        if (!\Pronghorn\Internal\ring_write($frame)) {
            throw self::lost();
        }
    }

    /** What the extension makes no call of. That it is a frame, heads() or length() says. */
    private function other(string $frame): ?Exchange
    {
        $fixed = $this->heads($frame);
        if ($fixed === null) {
            Frame::length($frame);
            $this->handle(Frame::decode($frame));

            return null;
        }
        // A job, an event of a connection, a request or a gRPC call whose body is to be asked
        // for, or one that makes no sense.
        $exchange = $this->exchange($frame, $fixed);
        $isOfPhp = $exchange instanceof JobExchange || $exchange instanceof TcpExchange;
        if ($isOfPhp || $fixed['f'] & Native::BODY_STREAM) {
            return $exchange;
        }
        throw new ProtocolError('a call whose lengths leave its frame');
    }

    /** What is in the way, if something is. */
    private function attach(string $offered, string $pipes, int $lookAfter): ?string
    {
        if (\Pronghorn\Internal\EXTENSION_API !== self::API) {
            return \sprintf(
                'extension pronghorn %s and package pronghorn/worker %s do not fit: install the same release of both',
                \phpversion('pronghorn'),
                self::RELEASE,
            );
        }
        if (\preg_match(self::NUMBERS, "$offered $pipes", $numbers) !== 1) {
            return self::OFFER . "=$offered names no three descriptors";
        }
        $descriptors = \array_map('intval', \array_slice($numbers, 1));

        return \Pronghorn\Internal\ring_attach(...[...$descriptors, $lookAfter, $this->http, $this->raw, $this->grpc]);
    }

    private static function lost(): ConnectionLost
    {
        return new ConnectionLost('the server is gone');
    }
}
