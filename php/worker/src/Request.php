<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Native;
use Pronghorn\Internal\ProtocolError;

/**
 * A request, decoded piece by piece as it is asked: a handler that looks at the path pays for the path.
 */
final class Request
{
    private const PROTOCOLS = [10 => 'HTTP/1.0', 11 => 'HTTP/1.1', 20 => 'HTTP/2.0', 30 => 'HTTP/3.0'];

    /** As the client sent it, e.g. `GET`. */
    public readonly string $method;
    /** Absolute: `http://host:port/path?query`, neither decoded nor normalised. */
    public readonly string $uri;
    /** As the client sent it: not decoded, not normalised. */
    public readonly string $path;
    /** What stands behind the `?`, not decoded; empty when there is none. */
    public readonly string $queryString;
    /** `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0` or `HTTP/3.0`. */
    public readonly string $protocol;
    /** The client's address without a port. */
    public readonly string $remoteAddress;
    /** @var array<lowercase-string, list<string>> in the order of the request; `host` is always the first if there is one */
    public readonly array $headers;
    /** @var array<string, string> set by the server's middleware */
    public readonly array $attributes;

    /** The frame the request came in, and the numbers of its fixed part under the letters of FIXED. */
    private string $bytes;
    /** @var array<string, int> */
    private array $fixed;

    private static ?self $prototype = null;

    /** Properties that are unset are filled by __get() when they are read. */
    private function __construct()
    {
        unset(
            $this->method,
            $this->uri,
            $this->path,
            $this->queryString,
            $this->protocol,
            $this->remoteAddress,
            $this->headers,
            $this->attributes,
        );
    }

    /**
     * @internal
     *
     * @param array<string, int> $fixed the numbers of the fixed part, see {@see Native::FIXED}
     */
    public static function decode(string $frame, array $fixed): self
    {
        // A clone takes the unset properties over: half the price of unsetting them again.
        $request = clone self::$prototype ??= new self();
        $request->bytes = $frame;
        $request->fixed = $fixed;

        return $request;
    }

    /** The first value of a header, or null. */
    public function header(string $name): ?string
    {
        return $this->headers[\strtolower($name)][0] ?? null;
    }

    /** @return array<array-key, string|array<mixed>> what PHP would put into `$_GET` */
    public function query(): array
    {
        \parse_str($this->queryString, $query);

        return $query;
    }

    public function body(): string
    {
        return \substr($this->bytes, 16 + $this->fixed['o']);
    }

    /** @return string|array<mixed> */
    public function __get(string $name): string|array
    {
        return match ($name) {
            'method' => $this->method = $this->text(0, $this->fixed['m']),
            'remoteAddress' => $this->remoteAddress = $this->text($this->fixed['m'], $this->fixed['i']),
            'uri' => $this->uri = $this->text($this->fixed['m'] + $this->fixed['i'], $this->fixed['u']),
            'path' => $this->path = \substr($this->uri, $this->fixed['p'], $this->fixed['q']),
            'queryString' => $this->queryString = \substr($this->uri, $this->fixed['p'] + $this->fixed['q'] + 1),
            'protocol' => $this->protocol = self::PROTOCOLS[$this->fixed['v']] ?? 'HTTP/1.1',
            'headers', 'attributes' => $this->fields($name),
            default => throw new \Error("Undefined property: Pronghorn\\Request::\$$name"),
        };
    }

    public function __isset(string $name): bool
    {
        return \property_exists($this, $name) && $name !== 'bytes' && $name !== 'fixed';
    }

    /** A piece of the strings that follow the tables. */
    private function text(int $start, int $length): string
    {
        $tables = 16 + Native::REQUEST_HEAD + 8 * ($this->fixed['h'] + $this->fixed['b']);

        return \substr($this->bytes, $tables + $start, $length);
    }

    /** @return array<string, mixed> */
    private function fields(string $asked): array
    {
        ['h' => $h, 'b' => $n] = $this->fixed;
        $at = 16 + Native::REQUEST_HEAD + 8 * ($h + $n) + $this->fixed['m'] + $this->fixed['i'] + $this->fixed['u'];
        $lengths = $h + $n === 0 ? [] : \unpack('V' . 2 * ($h + $n), $this->bytes, 16 + Native::REQUEST_HEAD);
        $headers = [];
        $host = \substr($this->uri, 0, $this->fixed['p']);
        $host = \substr($host, \strpos($host, '//') + 2);
        if ($host !== '') {
            $headers['host'] = [$host];
        }
        for ($i = 1; $i <= 2 * $h; $i += 2) {
            $name = \substr($this->bytes, $at, $lengths[$i]);
            $headers[$name][] = \substr($this->bytes, $at += $lengths[$i], $lengths[$i + 1]);
            $at += $lengths[$i + 1];
        }
        $attributes = [];
        for (; $i <= 2 * ($h + $n); $i += 2) {
            $name = \substr($this->bytes, $at, $lengths[$i]);
            $attributes[$name] = \substr($this->bytes, $at += $lengths[$i], $lengths[$i + 1]);
            $at += $lengths[$i + 1];
        }
        if ($at !== 16 + $this->fixed['o']) {
            throw new ProtocolError('a request whose strings do not end where its body begins');
        }
        $this->headers = $headers;
        $this->attributes = $attributes;

        return $this->$asked;
    }
}
