<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadStream;
use Pronghorn\Internal\BodyReader;
use Pronghorn\Internal\BodyTooLong;
use Pronghorn\Internal\BodyWrapper;
use Pronghorn\Internal\Cookies;
use Pronghorn\Internal\Form;
use Pronghorn\Internal\Frames;
use Pronghorn\Internal\MadeRequest;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Internal\ServerVariables;
use Pronghorn\Internal\Variables;

/**
 * A request, decoded piece by piece as it is asked: a handler that looks at the path pays for the
 * path.
 */
final class Request
{
    private const PROTOCOLS = [10 => 'HTTP/1.0', 11 => 'HTTP/1.1', 20 => 'HTTP/2.0', 30 => 'HTTP/3.0'];
    private const LAZY = ['method' => 1, 'uri' => 1, 'path' => 1, 'queryString' => 1, 'protocol' => 1,
        'remoteAddress' => 1, 'headers' => 1, 'cookies' => 1, 'attributes' => 1];

    /** As the client sent it, e.g. `GET`. */
    public readonly string $method;
    /** Absolute: `http://host:port/path?query`, neither decoded nor normalised. */
    public readonly string $uri;
    /** Neither decoded nor normalised. */
    public readonly string $path;
    /** What stands behind the `?`, not decoded; empty when there is none. */
    public readonly string $queryString;
    /** `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0` or `HTTP/3.0`. */
    public readonly string $protocol;
    /** The client's address without a port. */
    public readonly string $remoteAddress;
    /** @var array<lowercase-string, list<string>> in the order of the request, `host` first */
    public readonly array $headers;
    /** @var array<array-key, string|array<mixed>> what PHP would put into `$_COOKIE` */
    public readonly array $cookies;
    /** @var array<array-key, string> set by the server's middleware */
    public readonly array $attributes;

    /** The frame that the request came in; not set when the extension has read it. */
    private string $frame;
    /** @var array<string, int> its numbers, named by {@see Frames::FIXED} */
    private array $fixed;
    /** When the server accepted it: microseconds since the Unix epoch. */
    private int $startedAt;
    /** Of the request, as in {@see Native}. */
    private int $flags;
    /** Of headers. */
    private int $count;
    /** What stands behind the context: a body, a form, or the path of a file. */
    private string $payload;
    /**
     * What the client sent as `Host`: the server puts it into the URI and not among the headers.
     */
    private string $host;
    /** Names and values of the headers, with a NUL between each two; null when there are none. */
    private ?string $fields;
    /** Where the body comes from when it did not come with the request. */
    private ?BodyReader $reader = null;
    /** What came from there. */
    private ?string $content = null;
    /** @var ?array{array<mixed>, array<mixed>} fields and files */
    private ?array $form = null;
    /** The form that the server has taken apart. */
    private ?Form $parts = null;

    private static ?self $prototype = null;

    private function __construct()
    {
        // What is unset is filled by __get() when it is read for the first time.
        unset(
            $this->method,
            $this->uri,
            $this->path,
            $this->queryString,
            $this->protocol,
            $this->remoteAddress,
            $this->headers,
            $this->cookies,
            $this->attributes,
        );
    }

    /**
     * A request as a client would send it, for tests of handlers; {@see Testing\Client} has a
     * shorter way. Of `body`, `json` and `form` one is given at most, `files` go with a form.
     *
     * @param string $target `/path?query`, or absolute: `https://shop.example/path`
     * @param array<string, string|list<string>> $headers
     * @param mixed $json becomes the body, as JSON
     * @param array<array-key, mixed> $form texts, nested as their names would say
     * @param array<array-key, File|array<mixed>> $files of {@see File::fake()}, nested in the same way
     * @param array<string, string> $cookies
     * @param array<string, string> $attributes as the server's middleware sets them
     * @throws \ValueError when this can be no request
     */
    public static function create(
        string $method = 'GET',
        string $target = '/',
        array $headers = [],
        string $body = '',
        mixed $json = null,
        array $form = [],
        array $files = [],
        array $cookies = [],
        array $attributes = [],
        string $remoteAddress = '127.0.0.1',
    ): self {
        $made = MadeRequest::of($target, $headers, $body, $json, $form, $files, $cookies);
        $request = clone self::blank();
        $request->method = $method;
        $request->uri = "$made->scheme://$made->host$made->path" . ($made->query === '' ? '' : "?$made->query");
        $request->path = $made->path;
        $request->queryString = $made->query;
        $request->protocol = 'HTTP/1.1';
        $request->remoteAddress = $remoteAddress;
        $request->host = $made->host;
        $request->headers = $made->headers;
        $request->attributes = $attributes;
        $request->payload = $made->payload;
        $request->flags = ($made->isForm ? Native::FORM : 0) | ($made->scheme === 'https' ? Native::TLS : 0);
        $request->startedAt = (int) (\microtime(true) * 1e6);

        return $request;
    }

    /**
     * @internal
     *
     * @param string $frame whose fixed lengths were checked
     * @param array<string, int> $fixed its numbers, named by {@see Frames::FIXED}
     */
    public static function decode(string $frame, array $fixed, ?BodyReader $reader = null): self
    {
        // A clone takes over which properties are unset, at half the price of unsetting them again.
        $request = clone self::blank();
        $request->frame = $frame;
        $request->fixed = $fixed;
        $request->startedAt = $fixed['t'];
        $request->flags = $fixed['f'];
        $request->count = $fixed['h'];
        $request->reader = $reader;

        return $request;
    }

    /** @internal what all requests are clones of; the extension fills its own */
    public static function blank(): self
    {
        return self::$prototype ??= new self();
    }

    /** The first value of a header, in any case of letters; null when there is none. */
    public function header(string $name): ?string
    {
        return $this->headers[\strtolower($name)][0] ?? null;
    }

    /**
     * What a script behind nginx and php-fpm finds of its request in `$_SERVER`: method, target,
     * protocol, names and addresses, times, and the headers as `HTTP_…`. Of headers whose names
     * have other characters than letters, digits and hyphens, and of `Proxy`, nothing.
     *
     * @return array<string, string|int|float>
     */
    public function server(): array
    {
        return ServerVariables::of($this, $this->startedAt);
    }

    /** @return array<array-key, string|array<mixed>> what PHP would put into `$_GET` */
    public function query(): array
    {
        return $this->queryString === '' ? [] : Variables::ofQuery($this->queryString);
    }

    /**
     * The fields of a urlencoded or multipart form, whatever the method; else an empty array.
     *
     * @return array<array-key, string|array<mixed>> what PHP would put into `$_POST`
     */
    public function form(): array
    {
        return ($this->form ??= $this->parseForm())[0];
    }

    /**
     * The files of a multipart form, nested as their names say: `photo`, `photos[]`,
     * `album[cover]`. The server removes them after the call.
     *
     * @return array<array-key, File|array<mixed>>
     */
    public function files(): array
    {
        return ($this->form ??= $this->parseForm())[1];
    }

    /**
     * The whole body; empty for a multipart form, which the server has already taken apart.
     *
     * @throws Exception when it is larger than the memory that is left; {@see stream()} takes any
     *     size
     * @throws ClientGone with `request_body: stream`, when the client leaves before all of it is
     *     there
     */
    public function body(): string
    {
        if ($this->reader !== null) {
            return $this->content ??= $this->readBody($this->reader);
        }
        $path = $this->bodyFile();
        if ($path === null) {
            return $this->flags & Native::FORM ? '' : $this->payload();
        }
        BodyTooLong::check($path);

        return (string) \file_get_contents($path);
    }

    /**
     * The body as a stream at its start, without loading it. Each call opens a new one.
     *
     * With `request_body: stream` the body arrives while it is read, so there is one stream, which
     * can be read once and before the reply begins. Reading throws {@see ClientGone} when the
     * client leaves.
     *
     * @return resource
     */
    public function stream()
    {
        if ($this->reader !== null && $this->content === null) {
            return BodyWrapper::open($this->reader);
        }
        $path = $this->bodyFile();
        if ($path !== null) {
            return \fopen($path, 'rb') ?: throw new ProtocolError("the request's body in $path cannot be read");
        }
        $stream = \fopen('php://temp', 'r+b');
        \fwrite($stream, $this->body());
        \rewind($stream);

        return $stream;
    }

    /**
     * The body decoded as JSON, objects as arrays.
     *
     * @throws \JsonException when it is none
     */
    public function json(): mixed
    {
        return \json_decode($this->body(), true, 512, \JSON_THROW_ON_ERROR);
    }

    /** @internal microseconds since the Unix epoch */
    public function startedAt(): int
    {
        return $this->startedAt;
    }

    /** @internal path and query as the request line had them */
    public function target(): string
    {
        return \substr($this->uri, \strpos($this->uri, '://') + 3 + \strlen($this->host));
    }

    /** @internal */
    public function hasBody(): bool
    {
        return $this->reader !== null || $this->payload() !== '';
    }

    /** @internal whether form() and files() have something to look at */
    public function isForm(): bool
    {
        return ($this->flags & Native::FORM) !== 0
            || (isset($this->headers['content-type']) && Form::isUrlencoded($this->headers['content-type'][0]));
    }

    /** @internal what arrives while it is read, as long as {@see body()} did not */
    public function bodyReader(): ?BodyReader
    {
        return $this->content === null ? $this->reader : null;
    }

    /** @internal the form that the server has taken apart */
    public function parts(): Form
    {
        return $this->parts ??= Form::decode($this->payload());
    }

    /** @internal the path of the file that holds the body, or null when it is in memory */
    public function bodyFile(): ?string
    {
        return $this->flags & Native::BODY_FILE ? $this->payload() : null;
    }

    /** @return string|array<mixed> */
    public function __get(string $name): string|array
    {
        match ($name) {
            'headers' => $this->readHeaders(),
            'attributes' => $this->readAttributes(),
            'cookies' => $this->cookies = isset($this->headers['cookie'])
                ? Cookies::parse(\implode('; ', $this->headers['cookie']))
                : [],
            'method', 'uri', 'path', 'queryString', 'protocol', 'remoteAddress' => $this->readLine(),
            default => throw new \Error('Undefined property: ' . self::class . "::\$$name"),
        };

        return $this->$name;
    }

    /** Without it, `$request->cookies['id'] ?? null` would be null for ever. */
    public function __isset(string $name): bool
    {
        return isset(self::LAZY[$name]);
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        $shown = [];
        foreach (self::LAZY as $name => $_) {
            $shown[$name] = $this->$name;
        }

        return $shown;
    }

    private function readBody(BodyReader $reader): string
    {
        if ($reader->position() > 0) {
            throw new BadStream("Part of this request's body was read from its stream already.");
        }
        BodyTooLong::checkSize((int) $this->header('content-length'));

        return $reader->rest();
    }

    private function payload(): string
    {
        return $this->payload ??= \substr($this->frame, Native::FRAME + $this->fixed['o']);
    }

    /** The strings before the headers, all at once: each is cheaper than the way here. */
    private function readLine(): void
    {
        $text = \substr($this->frame, Native::FRAME + Native::REQUEST_HEAD + 8 * $this->fixed['b'], $this->fixed['x']);
        $strings = \explode("\0", $text, Native::LINE + 1);
        if (\count($strings) < Native::LINE) {
            throw new ProtocolError('a request with too few strings');
        }
        [$this->method, $this->remoteAddress, $this->uri, $this->host, $this->path, $this->queryString] = $strings;
        $this->fields = $strings[Native::LINE] ?? null;
        $this->protocol = self::PROTOCOLS[$this->fixed['v']] ?? 'HTTP/1.1';
    }

    private function readHeaders(): void
    {
        if (!isset($this->host)) {
            $this->readLine();
        }
        if (\function_exists('Pronghorn\Internal\native_headers')) {
            $this->headers = \Pronghorn\Internal\native_headers($this->fields, $this->host, $this->count)
                ?? throw new ProtocolError("a request that has not $this->count headers");

            return;
        }
        $named = $this->host === '' ? [] : ['host' => [$this->host]];
        $strings = $this->fields === null ? [] : \explode("\0", $this->fields);
        $count = \count($strings);
        if ($count !== 2 * $this->count) {
            throw new ProtocolError("a request that has not $this->count headers");
        }
        for ($i = 0; $i < $count; $i += 2) {
            $named[$strings[$i]][] = $strings[$i + 1];
        }
        $this->headers = $named;
    }

    private function readAttributes(): void
    {
        $count = 2 * $this->fixed['b'];
        $at = Native::FRAME + Native::REQUEST_HEAD;
        $lengths = $count === 0 ? [] : \unpack("V$count", $this->frame, $at);
        $at += 4 * $count + $this->fixed['x'];
        if ($at + \array_sum($lengths) !== Native::FRAME + $this->fixed['o']) {
            throw new ProtocolError('a request whose strings do not end where its body begins');
        }
        $named = [];
        for ($i = 1; $i <= $count; $i += 2) {
            $value = $at + $lengths[$i];
            $named[\substr($this->frame, $at, $lengths[$i])] = \substr($this->frame, $value, $lengths[$i + 1]);
            $at = $value + $lengths[$i + 1];
        }
        $this->attributes = $named;
    }

    /** @return array{array<mixed>, array<mixed>} fields and files */
    private function parseForm(): array
    {
        if ($this->flags & Native::FORM) {
            return [$this->parts()->post(), $this->parts()->files()];
        }

        return [$this->isForm() ? Variables::ofBody($this->body()) : [], []];
    }
}
