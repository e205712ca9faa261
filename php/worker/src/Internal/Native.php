<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * The native codec, version 1: what stands inside a frame. `docs/reference/native-codec.md` is its contract.
 *
 * Requests are decoded by {@see \Pronghorn\Request}, piece by piece, when the handler asks.
 */
final class Native
{
    public const VERSION = 1;

    /** Of this package. */
    public const SDK = '0.1.0';

    public const REQUEST = 0x01;
    public const CANCEL = 0x10;
    public const PING = 0x11;
    public const BODY = 0x12;
    public const REPLY = 0x81;
    public const CHUNK = 0x82;
    public const INFORMATIONAL = 0x83;
    public const ERROR = 0x84;
    public const EXTEND = 0x85;
    public const FREE = 0x86;
    public const WANT = 0x87;
    public const REMARK = 0x89;
    public const PONG = 0x91;

    /** Request flags. */
    public const BODY_FILE = 0x01;
    public const FORM = 0x02;
    public const TLS = 0x04;
    public const DEVELOPMENT = 0x08;
    public const BODY_STREAM = 0x10;

    /** Reply flags; BODY_FILE is the same as a request's. */
    public const BUSY = 0x02;
    public const LEAVING = 0x04;

    /**
     * Unpacks a request's frame up to its tables, the frame's own header included. One letter a number, because PHP
     * makes no string for a key of one letter: it halves the time. n payload length, s check sum of the frame, o length
     * of the context, k kind, f flags, h headers, c call, t accepted at, l time left, v protocol, b attributes, x
     * length of the text.
     */
    public const FIXED = 'x2/Vn/Vs/x2/Vo/Ck/Cf/vh/Vc/Pt/Vl/vv/vb/Vx';

    /** Bytes that every context starts with: kind, flags, a small number, the number of the call. */
    public const ENVELOPE = 8;

    /** Bytes of a request's context before its table. */
    public const REQUEST_HEAD = 28;

    /** Strings of a request's text before its headers. */
    public const LINE = 6;

    /** Time left that means: no limit. */
    public const NO_LIMIT = 0xFFFFFFFF;

    /** Set on a kind that a receiver may ignore when it doesn't know it. */
    public const IGNORABLE = 0x80;

    /**
     * The count, the table and the strings of header fields.
     *
     * @param array<array-key, scalar|\Stringable|list<scalar|\Stringable>> $headers by name, one value or several
     */
    public static function fields(array $headers): string
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

    public static function failure(Failure $failure): string
    {
        $strings = [$failure->class, $failure->message, $failure->file, $failure->trace];

        return \pack('V*', $failure->line, ...\array_map('strlen', $strings)) . \implode('', $strings);
    }
}
