<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Frame;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Tests\Support\Vectors;

final class FrameTest extends TestCase
{
    /**
     * @dataProvider frames
     * @param array<string, mixed> $frame
     */
    public function testReadsAndWritesTheVectors(array $frame): void
    {
        $bytes = hex2bin($frame['hex']);
        self::assertSame(strlen($bytes), Frame::length($bytes));

        $decoded = Frame::decode($bytes);
        self::assertSame($frame['flags'], $decoded->flags);
        self::assertSame($frame['stream'], $decoded->stream);
        self::assertSame($frame['options'], $decoded->options);
        self::assertSame($frame['payload_hex'], bin2hex($decoded->payload));

        $payload = hex2bin($frame['payload_hex']);
        $encoded = Frame::encode($frame['flags'], $frame['stream'], $frame['options'], $payload);
        self::assertSame($frame['hex'], bin2hex($encoded));
    }

    /** @return iterable<string, array{array<string, mixed>}> */
    public static function frames(): iterable
    {
        return Vectors::named('goridge', 'frames');
    }

    /**
     * @dataProvider broken
     * @param array<string, string> $frame
     */
    public function testRefusesWhatIsBroken(array $frame): void
    {
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessageMatches("/^{$frame['error']}: /");
        Frame::length(hex2bin($frame['hex']));
    }

    /** @return iterable<string, array{array<string, string>}> */
    public static function broken(): iterable
    {
        return Vectors::named('goridge', 'broken');
    }

    public function testWantsTwelveBytesBeforeItSaysAnything(): void
    {
        self::assertNull(Frame::length(substr(Frame::encode(0, 0, [], 'x'), 0, 11)));
    }
}
