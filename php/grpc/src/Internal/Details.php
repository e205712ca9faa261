<?php

declare(strict_types=1);

namespace Pronghorn\Grpc\Internal;

/** Writes `google.rpc.Status`, so that nobody needs its class for an error with details. */
final class Details
{
    private const LENGTH_DELIMITED = 2;

    /** @param list<object> $details messages */
    public static function pack(int $status, string $message, array $details): string
    {
        $packed = $status === 0 ? '' : "\x08" . self::number($status);
        $packed .= $message === '' ? '' : self::field(2, $message);
        foreach ($details as $detail) {
            $any = self::field(1, 'type.googleapis.com/' . self::typeOf($detail))
                . self::field(2, $detail->serializeToString());
            $packed .= self::field(3, $any);
        }

        return $packed;
    }

    /** The name of a message's type, as its own descriptor has it. */
    private static function typeOf(object $message): string
    {
        $pool = 'Google\Protobuf\DescriptorPool';
        $known = \class_exists($pool) ? $pool::getGeneratedPool() : null;

        return $known?->getDescriptorByClassName($message::class)?->getFullName() ?? \strtr($message::class, '\\', '.');
    }

    private static function field(int $number, string $bytes): string
    {
        return self::number($number << 3 | self::LENGTH_DELIMITED) . self::number(\strlen($bytes)) . $bytes;
    }

    private static function number(int $number): string
    {
        for ($bytes = ''; $number >= 0x80; $number >>= 7) {
            $bytes .= \chr($number & 0x7f | 0x80);
        }

        return $bytes . \chr($number);
    }
}
