<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Goridge frames: bytes to values and back. Does no I/O and knows nothing of what a payload means.
 *
 * A frame is 12 bytes (version and header length, flags, payload length, check sum of these six
 * bytes, stream bits, a spare byte), then up to ten options of four bytes, then the payload. All
 * numbers are little-endian.
 */
final class Frame
{
    public const CONTROL = 0x01;
    public const NATIVE = 0x02;
    public const JSON = 0x08;
    public const ERROR = 0x40;

    /** Stream bit: more frames of the same reply follow. */
    public const MORE = 0x01;

    /**
     * The longest payload that is taken. The server puts bodies above 256 KB into files, so what is
     * longer than this is a broken length, and must not become an allocation.
     */
    public const MAX_PAYLOAD = 64 * 1024 * 1024;

    /** @param list<int> $options */
    public function __construct(
        public readonly int $flags,
        public readonly int $stream,
        public readonly array $options,
        public readonly string $payload,
    ) {
    }

    /** @param list<int> $options */
    public static function encode(int $flags, int $stream, array $options, string $payload): string
    {
        $head = \pack('CCV', 0x13 + \count($options), $flags, \strlen($payload));

        return $head . \pack('VvV*', \crc32($head), $stream, ...$options) . $payload;
    }

    /**
     * The length of the frame that these bytes begin with, or null when they are too few to say.
     */
    public static function length(string $bytes): ?int
    {
        if (\strlen($bytes) < 12) {
            return null;
        }
        ['w' => $word, 'n' => $length, 's' => $sum] = \unpack('Cw/Cf/Vn/Vs', $bytes);
        if (\crc32(\substr($bytes, 0, 6)) !== $sum) {
            throw new ProtocolError('crc: these bytes are no Goridge frame: ' . self::show($bytes));
        }
        if ($word >> 4 !== 1) {
            throw new ProtocolError('version: a Goridge frame of version ' . ($word >> 4) . ', only 1 is known');
        }
        $words = $word & 0x0F;
        if ($words < 3 || $words > 13) {
            throw new ProtocolError("header-length: a Goridge header of $words words, 3 to 13 are allowed");
        }
        if ($length > self::MAX_PAYLOAD) {
            throw new ProtocolError("too-long: a payload of $length bytes, the limit is " . self::MAX_PAYLOAD);
        }

        return $words * 4 + $length;
    }

    /** @param string $bytes exactly one frame, as {@see length()} measured it */
    public static function decode(string $bytes): self
    {
        $header = (\ord($bytes[0]) & 0x0F) * 4;
        $options = $header > 12 ? \array_values(\unpack('V*', \substr($bytes, 12, $header - 12))) : [];

        return new self(\ord($bytes[1]), \ord($bytes[10]), $options, \substr($bytes, $header));
    }

    private static function show(string $bytes): string
    {
        return '"' . \addcslashes(\substr($bytes, 0, 80), "\0..\37\"\\\177..\377") . '"';
    }
}
