<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Call;
use Pronghorn\Internal\HttpExchange;
use Pronghorn\Request;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UriInterface;

/**
 * A PSR-7 request that is made as it is asked: what a handler does not look at costs nothing. Its
 * URI, its body and its files are objects of the application's library.
 *
 * Parameters have no types and results have: so it fits version 1 and version 2 of the interface.
 */
final class ServerRequest implements ServerRequestInterface
{
    private const VERSIONS = ['HTTP/1.0' => '1.0', 'HTTP/1.1' => '1.1', 'HTTP/2.0' => '2', 'HTTP/3.0' => '3'];
    /** RFC 9110 */
    private const TOKEN = '/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D';

    // What nobody has asked for or changed is null.
    private ?string $method = null;
    private ?string $version = null;
    private ?string $target = null;
    private ?UriInterface $uri = null;
    private ?StreamInterface $body = null;
    /** @var ?array<array-key, list<string>> by their names in lower case */
    private ?array $headers = null;
    /**
     * @var array<array-key, string> names as they were given, by those in lower case, where they
     *     differ
     */
    private array $names = [];
    /** @var ?array<string, mixed> */
    private ?array $server = null;
    /** @var ?array<array-key, mixed> */
    private ?array $cookies = null;
    /** @var ?array<array-key, mixed> */
    private ?array $query = null;
    /** @var ?array<array-key, mixed> */
    private ?array $files = null;
    /** @var ?array<array-key, mixed> */
    private ?array $attributes = null;
    private bool $isParsed = false;
    /** @var array<array-key, mixed>|object|null */
    private array|object|null $parsed = null;

    private readonly Request $request;

    public function __construct(private readonly Messages $messages, private readonly HttpExchange $exchange)
    {
        $this->request = $exchange->request;
    }

    public function getProtocolVersion(): string
    {
        return $this->version ??= self::VERSIONS[$this->request->protocol];
    }

    public function withProtocolVersion($version): static
    {
        $new = clone $this;
        $new->version = (string) $version;

        return $new;
    }

    public function getHeaders(): array
    {
        $headers = $this->headers ?? $this->request->headers;
        if ($this->names === []) {
            return $headers;
        }
        $named = [];
        foreach ($headers as $name => $values) {
            $named[$this->names[$name] ?? $name] = $values;
        }

        return $named;
    }

    public function hasHeader($name): bool
    {
        return isset(($this->headers ?? $this->request->headers)[\strtolower($name)]);
    }

    public function getHeader($name): array
    {
        return ($this->headers ?? $this->request->headers)[\strtolower($name)] ?? [];
    }

    public function getHeaderLine($name): string
    {
        $values = $this->getHeader($name);

        return isset($values[1]) ? \implode(', ', $values) : $values[0] ?? '';
    }

    public function withHeader($name, $value): static
    {
        return $this->with($name, self::values($name, $value));
    }

    public function withAddedHeader($name, $value): static
    {
        return $this->with($name, [...$this->getHeader($name), ...self::values($name, $value)]);
    }

    public function withoutHeader($name): static
    {
        $new = clone $this;
        $new->headers = $this->headers ?? $this->request->headers;
        unset($new->headers[\strtolower($name)], $new->names[\strtolower($name)]);

        return $new;
    }

    public function getBody(): StreamInterface
    {
        return $this->body ??= $this->messages->body($this->request);
    }

    public function withBody(StreamInterface $body): static
    {
        $new = clone $this;
        $new->body = $body;

        return $new;
    }

    public function getRequestTarget(): string
    {
        if ($this->target !== null) {
            return $this->target;
        }
        [$path, $query] = $this->uri === null
            ? [$this->request->path, $this->request->queryString]
            : [$this->uri->getPath(), $this->uri->getQuery()];

        return ($path === '' ? '/' : $path) . ($query === '' ? '' : "?$query");
    }

    public function withRequestTarget($requestTarget): static
    {
        if (\preg_match('/\s/', $requestTarget) === 1) {
            throw new \InvalidArgumentException('A request target holds no white space.');
        }
        $new = clone $this;
        $new->target = $requestTarget;

        return $new;
    }

    public function getMethod(): string
    {
        return $this->method ??= $this->request->method;
    }

    public function withMethod($method): static
    {
        if (\preg_match(self::TOKEN, $method) !== 1) {
            throw new \InvalidArgumentException("\"$method\" is no method of HTTP.");
        }
        $new = clone $this;
        $new->method = $method;

        return $new;
    }

    public function getUri(): UriInterface
    {
        return $this->uri ??= $this->messages->uri($this->request);
    }

    public function withUri(UriInterface $uri, $preserveHost = false): static
    {
        $new = clone $this;
        $new->uri = $uri;
        $host = $uri->getHost();
        if ($host === '' || ($preserveHost && $this->hasHeader('host'))) {
            return $new;
        }
        $port = $uri->getPort();
        $headers = $this->headers ?? $this->request->headers;
        if (!isset($headers['host'])) {
            $new->names['host'] = 'Host';
        }
        unset($headers['host']);
        // As RFC 9110 wants it: the first one.
        $new->headers = ['host' => [$port === null ? $host : "$host:$port"]] + $headers;

        return $new;
    }

    public function getServerParams(): array
    {
        return $this->server ??= $this->request->server();
    }

    public function getCookieParams(): array
    {
        return $this->cookies ??= $this->request->cookies;
    }

    public function withCookieParams(array $cookies): static
    {
        $new = clone $this;
        $new->cookies = $cookies;

        return $new;
    }

    public function getQueryParams(): array
    {
        return $this->query ??= $this->request->query();
    }

    public function withQueryParams(array $query): static
    {
        $new = clone $this;
        $new->query = $query;

        return $new;
    }

    public function getUploadedFiles(): array
    {
        return $this->files ??= $this->messages->files($this->request->files());
    }

    public function withUploadedFiles(array $uploadedFiles): static
    {
        $new = clone $this;
        $new->files = $uploadedFiles;

        return $new;
    }

    public function getParsedBody(): array|object|null
    {
        if (!$this->isParsed) {
            $this->parsed = $this->request->isForm() ? $this->request->form() : null;
            $this->isParsed = true;
        }

        return $this->parsed;
    }

    public function withParsedBody($data): static
    {
        if ($data !== null && !\is_array($data) && !\is_object($data)) {
            throw new \InvalidArgumentException('A parsed body is an array, an object or null.');
        }
        $new = clone $this;
        $new->parsed = $data;
        $new->isParsed = true;

        return $new;
    }

    public function getAttributes(): array
    {
        return $this->attributes ??= $this->request->attributes + [Call::class => $this->exchange->call()];
    }

    public function getAttribute($name, $default = null): mixed
    {
        // Frameworks set null, and mean it.
        $attributes = $this->attributes ?? $this->getAttributes();

        return \array_key_exists($name, $attributes) ? $attributes[$name] : $default;
    }

    public function withAttribute($name, $value): static
    {
        $new = clone $this;
        $new->attributes = $this->attributes ?? $this->getAttributes();
        $new->attributes[$name] = $value;

        return $new;
    }

    public function withoutAttribute($name): static
    {
        $new = clone $this;
        $new->attributes = $this->getAttributes();
        unset($new->attributes[$name]);

        return $new;
    }

    /** @param list<string> $values */
    private function with(string $name, array $values): static
    {
        $new = clone $this;
        $new->headers = $this->headers ?? $this->request->headers;
        $lower = \strtolower($name);
        $new->headers[$lower] = $values;
        if ($lower !== $name) {
            $new->names[$lower] = $name;
        } else {
            unset($new->names[$lower]);
        }

        return $new;
    }

    /** @return list<string> */
    private static function values(mixed $name, mixed $value): array
    {
        if (!\is_string($name) || \preg_match(self::TOKEN, $name) !== 1) {
            throw new \InvalidArgumentException('The name of a header is a token of HTTP.');
        }
        $values = [];
        foreach (\is_array($value) ? $value : [$value] as $one) {
            if (!\is_string($one) && !\is_int($one) && !\is_float($one)) {
                throw new \InvalidArgumentException("A value of the header \"$name\" is no text.");
            }
            if (\preg_match('/[\0\r\n]/', (string) $one) === 1) {
                throw new \InvalidArgumentException("A value of the header \"$name\" has a line end or a NUL byte.");
            }
            $values[] = \trim((string) $one, " \t");
        }
        if ($values === []) {
            throw new \InvalidArgumentException("The header \"$name\" has no value.");
        }

        return $values;
    }
}
