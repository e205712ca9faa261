<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Pronghorn\Internal\Frame;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Ring;

/** A server at the other end of a box in the same process. Holds what fits into it. */
final class RingServer implements Server
{
    /** A process attaches one box in its life, so all tests share it. */
    private static ?Box $box = null;
    private static ?Ring $ring = null;

    private int $requests = 0;

    private function __construct()
    {
    }

    /** @return array{Ring, self} */
    public static function connect(): array
    {
        if (self::$ring === null) {
            self::$box = new Box();
            putenv(Ring::OFFER . '=' . implode(',', self::$box->descriptors));
            $announced = [];
            $pipe = self::$box->pipe;
            self::$ring = Ring::take("$pipe,$pipe", $announced, 0)
                ?? throw new \RuntimeException('no ring: ' . json_encode($announced));
        }
        // What is left of the test before.
        self::$box->reset();
        foreach (['stopped' => false, 'gone' => 0] as $name => $value) {
            $property = new \ReflectionProperty(Ring::class, $name);
            $property->setValue(self::$ring, $value);
        }

        return [self::$ring, new self()];
    }

    public function request(array $fields = [], string $body = ''): void
    {
        $this->requests++;
        // Two calls at a time have two numbers: whoever begins one clears its bit.
        $this->send(Codec::frame(Codec::request($fields + ['call' => $this->requests]), $body));
    }

    public function raw(string $payload, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::raw($fields + ['call' => $this->requests]), $payload));
    }

    public function job(string $payload, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::job($fields + ['call' => $this->requests]), $payload));
    }

    public function tcp(string $message, array $fields = []): void
    {
        $this->requests++;
        $this->send(Codec::frame(Codec::tcp($fields + ['call' => $this->requests]), $message));
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
        self::$box->hangUp();
    }

    public function close(): void
    {
        self::$box->hangUp();
        self::$box->spoil();
    }

    public function send(string $bytes): void
    {
        if (self::$box->put($bytes) !== strlen($bytes)) {
            throw new \RuntimeException('the box is full');
        }
    }

    public function received(): array
    {
        return Codec::messages($this->bytes());
    }

    public function bytes(): string
    {
        return self::$box->take();
    }
}
