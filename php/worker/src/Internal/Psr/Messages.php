<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Call;
use Pronghorn\File;
use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\HttpExchange;
use Pronghorn\Request;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriInterface;

/**
 * PSR-7 requests from ours: objects of our own, which are filled as they are asked, unless the
 * handler's parameter or the application's factories want those of a library.
 */
final class Messages
{
    private const VERSIONS = ['HTTP/1.0' => '1.0', 'HTTP/1.1' => '1.1', 'HTTP/2.0' => '2', 'HTTP/3.0' => '3'];

    /**
     * URIs are immutable, most sites have some that are asked for again and again, and taking one
     * apart is dear.
     */
    private const URIS = 64;
    private const LONGEST_URI = 256;

    private ?Library $library = null;
    /** @var array<string, UriInterface> */
    private array $uris = [];
    private bool $ofLibrary;

    /**
     * @param list<object> $factories PSR-17 factories of the application; those that are missing
     *     are looked for
     */
    public function __construct(private readonly array $factories)
    {
        $this->ofLibrary = $factories !== [];
    }

    /**
     * Finds the library now, so that what is missing ends the boot and not the first call.
     *
     * @param class-string $type of the handler's parameter
     * @throws BadWorker when there is none whose requests are of that type
     */
    public function prepare(string $type): void
    {
        $this->library = Libraries::find($this->factories, $type);
        $this->ofLibrary = $this->ofLibrary || !\interface_exists($type);
    }

    public function request(HttpExchange $exchange): ServerRequestInterface
    {
        return $this->ofLibrary ? $this->build($exchange) : new ServerRequest($this, $exchange);
    }

    /** @internal for {@see ServerRequest} */
    public function uri(Request $request): UriInterface
    {
        return $this->uris[$request->uri] ?? $this->message($this->library(), $request, [], [])->getUri();
    }

    /** @internal for {@see ServerRequest} */
    public function body(Request $request): StreamInterface
    {
        $reader = $request->bodyReader();
        if ($reader !== null) {
            $size = $request->header('content-length');

            return new RequestStream($reader, $size === null ? null : (int) $size);
        }
        $path = $request->bodyFile();

        return $path === null
            ? $this->library()->stream($request->body())
            : $this->library()->streamFromFile($path);
    }

    /**
     * @internal for {@see ServerRequest}
     *
     * @param array<array-key, File|array<mixed>> $files
     * @return array<array-key, UploadedFileInterface|array<mixed>>
     */
    public function files(array $files): array
    {
        return \array_map(
            fn (File|array $file) => \is_array($file) ? $this->files($file) : $this->library()->file($file),
            $files,
        );
    }

    private function library(): Library
    {
        return $this->library ??= Libraries::find($this->factories, ServerRequestInterface::class);
    }

    /** One of the library. */
    private function build(HttpExchange $exchange): ServerRequestInterface
    {
        $library = $this->library();
        $request = $exchange->request;
        $server = $request->server();
        $message = $this->message($library, $request, $request->headers, $server);
        if ($request->queryString !== '') {
            $message = $message->withQueryParams($request->query());
        }
        if (isset($request->headers['cookie'])) {
            $message = $message->withCookieParams($request->cookies);
        }
        if ($request->hasBody() || isset($request->headers['content-type'])) {
            $message = $this->withBody($request, $message);
        }
        foreach ($request->attributes as $name => $value) {
            $message = $message->withAttribute((string) $name, $value);
        }

        return $message->withAttribute(Call::class, $exchange->call());
    }

    /**
     * @param array<array-key, list<string>> $headers
     * @param array<string, string|int|float> $server
     */
    private function message(
        Library $library,
        Request $request,
        array $headers,
        array $server,
    ): ServerRequestInterface {
        $version = self::VERSIONS[$request->protocol];
        $known = $this->uris[$request->uri] ?? null;
        try {
            $message = $library->request($request->method, $known ?? $request->uri, $headers, $version, $server);
        } catch (\InvalidArgumentException) {
            // A URI that is right for HTTP and wrong for the library, e.g. without a host in
            // HTTP/1.0.
            $message = $library->request($request->method, '/', $headers, $version, $server);
            $uri = $message->getUri()->withPath($request->path)->withQuery($request->queryString);
            $message = $message->withUri($uri, true);
        }
        if ($known === null && \strlen($request->uri) <= self::LONGEST_URI) {
            if (\count($this->uris) === self::URIS) {
                $this->uris = [];
            }
            $this->uris[$request->uri] = $message->getUri();
        }

        return $message;
    }

    private function withBody(Request $request, ServerRequestInterface $message): ServerRequestInterface
    {
        if ($request->isForm()) {
            $message = $message->withParsedBody($request->form());
            $files = $this->files($request->files());
            if ($files !== []) {
                $message = $message->withUploadedFiles($files);
            }
        }

        return $request->hasBody() ? $message->withBody($this->body($request)) : $message;
    }
}
