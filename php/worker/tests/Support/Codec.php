<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Pronghorn\Internal\Form;
use Pronghorn\Internal\Frame;
use Pronghorn\Internal\Native;

/** The server's half of the native codec: writes what workers read, reads what they write. */
final class Codec
{
    /** Kinds of a number or nothing behind the envelope. */
    private const SHORT = [
        Native::EXTEND => 'extend', Native::WANT => 'want', Native::FREE => 'free', Native::PONG => 'pong',
    ];

    /**
     * @param array<string, mixed> $fields as in `vectors/native.json`; what is missing is that of a
     *     plain GET
     * @return string the context
     */
    public static function request(array $fields): string
    {
        $fields += [
            'call' => 1, 'flags' => 0, 'started' => 0, 'left' => null, 'method' => 'GET', 'remote' => '127.0.0.1',
            'uri' => 'http://127.0.0.1:8080/', 'protocol' => 11, 'headers' => [], 'attributes' => [],
        ];
        $start = (int) strpos($fields['uri'], '/', (int) strpos($fields['uri'], '://') + 3);
        $length = strcspn($fields['uri'], '?', $start);
        $scheme = (int) strpos($fields['uri'], '://') + 3;
        $table = '';
        $attributes = '';
        foreach ($fields['attributes'] as [$name, $value]) {
            $table .= pack('VV', strlen($name), strlen($value));
            $attributes .= $name . $value;
        }
        $text = implode("\0", [
            $fields['method'],
            $fields['remote'],
            $fields['uri'],
            substr($fields['uri'], $scheme, $start - $scheme),
            substr($fields['uri'], $start, $length),
            (string) substr($fields['uri'], $start + $length + 1),
            ...array_merge(...$fields['headers']),
        ]);

        return pack(
            'CCvVPVvvV',
            Native::REQUEST,
            $fields['flags'],
            count($fields['headers']),
            $fields['call'],
            $fields['started'],
            $fields['left'] ?? Native::NO_LIMIT,
            $fields['protocol'],
            count($fields['attributes']),
            strlen($text),
        ) . $table . $text . $attributes;
    }

    /**
     * @param array<string, mixed> $fields as in `vectors/native.json`
     * @return string the context of a raw call
     */
    public static function raw(array $fields): string
    {
        $fields += ['call' => 1, 'flags' => 0, 'started' => 0, 'left' => null];

        return self::envelope(Native::RAW, $fields['call'], $fields['flags'])
            . pack('PV', $fields['started'], $fields['left'] ?? Native::NO_LIMIT);
    }

    /**
     * @param array<string, mixed> $fields as in `vectors/native.json`
     * @return string the context of a job
     */
    public static function job(array $fields): string
    {
        $fields += [
            'call' => 1, 'flags' => 0, 'started' => 0, 'left' => null, 'attempt' => 1, 'id' => 'id', 'name' => 'ping',
            'pipeline' => 'mail', 'driver' => 'memory', 'headers' => [],
        ];
        $texts = [$fields['id'], $fields['name'], $fields['pipeline'], $fields['driver']];
        $fieldsOfHeaders = array_merge([], ...$fields['headers']);
        $times = pack('PV', $fields['started'], $fields['left'] ?? Native::NO_LIMIT);
        $all = [...$texts, ...$fieldsOfHeaders];

        return pack('CCvV', Native::JOB, $fields['flags'], count($fields['headers']), $fields['call'])
            . $times . pack('VV*', $fields['attempt'], ...array_map('strlen', $all)) . implode('', $all);
    }

    /**
     * @param array<string, mixed> $fields as in `vectors/native.json`
     * @return string the context of an event of a connection
     */
    public static function tcp(array $fields): string
    {
        $fields += [
            'call' => 1, 'flags' => 0, 'started' => 0, 'left' => null, 'event' => Native::TCP_DATA, 'server' => 'mail',
            'connection' => 'id', 'remote' => '127.0.0.1:4711', 'state' => '', 'certificate' => '',
        ];
        $keys = ['server', 'connection', 'remote', 'state', 'certificate'];
        $texts = array_map(static fn (string $key): string => $fields[$key], $keys);

        return pack('CCvV', Native::TCP, $fields['flags'], $fields['event'], $fields['call'])
            . pack('PV', $fields['started'], $fields['left'] ?? Native::NO_LIMIT)
            . pack('V*', ...array_map('strlen', $texts)) . implode('', $texts);
    }

    /** @param list<array<string, mixed>> $entries as in `vectors/native.json` */
    public static function form(array $entries): string
    {
        return Form::encode(array_map(static function (array $entry): array {
            $entry += ['kind' => 0, 'error' => 0, 'value' => '', 'type' => '', 'path' => ''];

            return $entry + ['size' => strlen($entry['value'])];
        }, $entries));
    }

    public static function frame(string $context, string $body = '', int $stream = 0): string
    {
        return Frame::encode(Frame::NATIVE, $stream, [strlen($context)], $context . $body);
    }

    public static function envelope(int $kind, int $call, int $flags = 0): string
    {
        return pack('CCvV', $kind, $flags, 0, $call);
    }

    public static function control(string $json): string
    {
        return Frame::encode(Frame::CONTROL | Frame::JSON, 0, [], $json);
    }

    /**
     * @param string $bytes whole frames
     * @return list<Message>
     */
    public static function messages(string $bytes): array
    {
        $messages = [];
        while ($bytes !== '') {
            $length = Frame::length($bytes) ?? throw new \RuntimeException('half a frame');
            if ($length > strlen($bytes)) {
                throw new \RuntimeException('a frame that is cut off');
            }
            $messages[] = self::message(Frame::decode(substr($bytes, 0, $length)));
            $bytes = substr($bytes, $length);
        }

        return $messages;
    }

    public static function message(Frame $frame): Message
    {
        if ($frame->flags & Frame::CONTROL) {
            return new Message('control', body: $frame->payload);
        }
        $context = substr($frame->payload, 0, $frame->options[0]);
        $body = substr($frame->payload, $frame->options[0]);
        ['k' => $kind, 'f' => $flags, 's' => $small, 'c' => $call] = unpack('Ck/Cf/vs/Vc', $context);
        $more = $frame->stream === Frame::MORE;
        $rest = substr($context, 8);

        return match ($kind) {
            Native::REPLY => new Message('reply', $call, $flags, $more, $small, self::fields($rest), $body),
            Native::CHUNK => new Message('chunk', $call, $flags, $more, body: $body),
            Native::INFORMATIONAL => new Message('informational', $call, $flags, $more, $small, self::fields($rest)),
            Native::REMARK => new Message('remark', $call, $flags, $more, error: self::error($rest)),
            Native::ERROR => new Message('error', $call, $flags, $more, error: self::error($rest)),
            Native::EXTEND, Native::WANT
                => new Message(self::SHORT[$kind], $call, $flags, $more, unpack('V', $rest)[1]),
            Native::FREE, Native::PONG => new Message(self::SHORT[$kind], $call, $flags, $more),
            default => self::said($kind, $call, $flags, $small, $rest),
        };
    }

    /** What the application says. */
    private static function said(int $kind, int $call, int $flags, int $level, string $rest): Message
    {
        if ($kind === Native::ROUTE || $kind === Native::COUNTS) {
            return new Message($kind === Native::ROUTE ? 'route' : 'counts', $call, $flags, body: $rest);
        }
        if ($kind === Native::ASK) {
            return new Message('ask', $call, $flags, body: $rest);
        }
        if ($kind === Native::MESSAGE) {
            return new Message('message', $call, $flags, body: $rest);
        }
        if ($kind !== Native::LOG) {
            throw new \RuntimeException("a message of kind $kind");
        }
        $length = unpack('V', $rest)[1];
        $body = substr($rest, 4, $length) . ' ' . substr($rest, 4 + $length);

        return new Message('log', $call, $flags, number: $level, body: $body);
    }

    /** @return list<array{string, string|int}> */
    private static function fields(string $bytes): array
    {
        if ($bytes === '') {
            // The reply to a raw call has none, not even their number.
            return [];
        }
        if (str_starts_with($bytes, 'a:')) {
            // A state of a connection, as PHP writes it.
            return [['state', $bytes]];
        }
        if (strlen($bytes) === 8) {
            // That of a job that is to run again has a time.
            return [['delay', unpack('P', $bytes)[1]]];
        }
        $count = unpack('V', $bytes)[1];
        $at = 4 + 8 * $count;
        $fields = [];
        for ($i = 0; $i < $count; $i++) {
            ['n' => $name, 'v' => $value] = unpack('Vn/Vv', $bytes, 4 + 8 * $i);
            $fields[] = [substr($bytes, $at, $name), substr($bytes, $at + $name, $value)];
            $at += $name + $value;
        }
        if ($at !== strlen($bytes)) {
            throw new \RuntimeException('fields with bytes left over');
        }

        return $fields;
    }

    /** @return array{class: string, message: string, file: string, line: int, trace: string} */
    private static function error(string $bytes): array
    {
        ['l' => $line, 'c' => $class, 'm' => $message, 'f' => $file, 't' => $trace] = unpack('Vl/Vc/Vm/Vf/Vt', $bytes);

        return [
            'class' => substr($bytes, 20, $class),
            'message' => substr($bytes, 20 + $class, $message),
            'file' => substr($bytes, 20 + $class + $message, $file),
            'line' => $line,
            'trace' => substr($bytes, 20 + $class + $message + $file, $trace),
        ];
    }
}
