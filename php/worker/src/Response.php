<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadResponse;
use Pronghorn\Internal\Cookie;
use Pronghorn\Internal\Events;
use Pronghorn\Internal\ServedFile;
use Pronghorn\Internal\WrittenBody;

/** A reply of a plain handler. */
final class Response
{
    private const JSON = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE
        | \JSON_PRESERVE_ZERO_FRACTION;

    /**
     * @param string|iterable<string>|\Stringable $body an iterable is streamed: each element is
     *     sent at once, the first one together with the head
     * @param int $status 200 to 599
     * @param array<array-key, string|int|list<string|int>> $headers by name, one value or several
     * @throws Exception when the status is out of its range
     */
    public function __construct(
        public readonly string|iterable|\Stringable $body = '',
        public readonly int $status = 200,
        public readonly array $headers = [],
    ) {
        if ($status < 200 || $status > 599) {
            throw new BadResponse("A reply cannot have the status $status: 200 to 599 are allowed.");
        }
    }

    /** @param array<array-key, string|int|list<string|int>> $headers */
    public static function html(string|\Stringable $html, int $status = 200, array $headers = []): self
    {
        return new self($html, $status, $headers + ['Content-Type' => 'text/html; charset=UTF-8']);
    }

    /** @param array<array-key, string|int|list<string|int>> $headers */
    public static function text(string|\Stringable $text, int $status = 200, array $headers = []): self
    {
        return new self($text, $status, $headers + ['Content-Type' => 'text/plain; charset=UTF-8']);
    }

    /**
     * @param array<array-key, string|int|list<string|int>> $headers
     * @throws \JsonException when the value can't be written as JSON
     */
    public static function json(mixed $value, int $status = 200, array $headers = []): self
    {
        $json = \json_encode($value, self::JSON);

        return new self($json, $status, $headers + ['Content-Type' => 'application/json']);
    }

    /**
     * A file that the server sends, while this worker is free for the next call. The server must be
     * allowed to read it, and names its type by its extension when there is no `Content-Type`.
     *
     * @param array<array-key, string|int|list<string|int>> $headers
     * @throws Exception when there is no such file
     */
    public static function file(string $path, array $headers = []): self
    {
        return new self(new ServedFile($path), 200, $headers);
    }

    /**
     * @param int $status 300 to 399
     * @param array<array-key, string|int|list<string|int>> $headers
     * @throws Exception when the status is no redirect
     */
    public static function redirect(string $location, int $status = 302, array $headers = []): self
    {
        if ($status < 300 || $status > 399) {
            throw new BadResponse("A redirect cannot have the status $status: 300 to 399 are allowed.");
        }

        return new self('', $status, ['Location' => $location] + $headers);
    }

    /**
     * A reply that is written instead of yielded, for code that can't be a generator.
     *
     *     Response::stream(fn (\Closure $send) => $report->eachLine(fn ($line) => $send("$line\n")))
     *
     * @param callable(\Closure(string): void): mixed $write gets a function that sends a piece at
     *     once, the first one together with the head; it throws {@see ClientGone} when the client
     *     has left
     * @param int $status 200 to 599
     * @param array<array-key, string|int|list<string|int>> $headers
     * @throws Exception when the status is out of its range
     */
    public static function stream(callable $write, int $status = 200, array $headers = []): self
    {
        return new self(new WrittenBody($write(...)), $status, $headers);
    }

    /**
     * Server-Sent Events. The head goes out at once; the worker is busy until the last event or
     * until the client leaves.
     *
     * @param iterable<string|array{data?: string, event?: string, id?: string, retry?: int, comment?: string}> $events
     *     a string is data; `retry` is in milliseconds; a comment keeps the connection alive
     * @param array<array-key, string|int|list<string|int>> $headers
     */
    public static function events(iterable $events, array $headers = []): self
    {
        return new self(new Events($events), 200, $headers + [
            'Content-Type' => 'text/event-stream',
            'Cache-Control' => 'no-cache',
            // Else nginx in front would keep events back until it has a buffer full of them.
            'X-Accel-Buffering' => 'no',
        ]);
    }

    /**
     * The same with this header, in place of those with the name in any case of letters.
     *
     * @param string|int|list<string|int> $value
     */
    public function withHeader(string $name, string|int|array $value): self
    {
        $headers = \array_filter(
            $this->headers,
            static fn (int|string $known): bool => \strcasecmp((string) $known, $name) !== 0,
            \ARRAY_FILTER_USE_KEY,
        );

        return new self($this->body, $this->status, $headers + [$name => $value]);
    }

    /**
     * The same with one more cookie. By default it ends with the browser, scripts do not see it,
     * and other sites do not send it but by a link.
     *
     * @param ?int $maxAge seconds; 0 removes it; null: until the browser ends
     * @param string $sameSite `Lax`, `Strict` or `None`
     * @throws Exception when the name, path or domain can't be one
     */
    public function withCookie(
        string $name,
        string $value,
        ?int $maxAge = null,
        string $path = '/',
        string $domain = '',
        bool $secure = false,
        bool $httpOnly = true,
        string $sameSite = 'Lax',
    ): self {
        $cookie = Cookie::write($name, $value, $maxAge, $path, $domain, $secure, $httpOnly, $sameSite);
        $cookies = [];
        foreach ($this->headers as $known => $values) {
            if (\strcasecmp((string) $known, 'Set-Cookie') === 0) {
                $cookies = \array_merge($cookies, \is_array($values) ? $values : [$values]);
            }
        }

        return $this->withHeader('Set-Cookie', [...$cookies, $cookie]);
    }
}
