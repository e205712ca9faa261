<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\File;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriInterface;
use Slim\Psr7\Factory\UriFactory;
use Slim\Psr7\Headers;
use Slim\Psr7\Request;
use Slim\Psr7\UploadedFile;

/**
 * Slim's library. Its requests copy headers and body deeply, so adding headers one by one would
 * cost several times as much.
 */
final class Slim implements Library
{
    private readonly UriFactory $uris;

    public function __construct(private readonly Factories $factories)
    {
        $this->uris = new UriFactory();
    }

    public function requestClass(): string
    {
        return Request::class;
    }

    public function request(
        string $method,
        string|UriInterface $uri,
        array $headers,
        string $version,
        array $server,
    ): ServerRequestInterface {
        // Its constructor refuses names that PHP has made integers.
        $named = \array_filter($headers, '\is_string', \ARRAY_FILTER_USE_KEY);
        // An empty list of globals: else it looks for an Authorization header in this process's
        // environment.
        $request = new Request(
            $method,
            \is_string($uri) ? $this->uris->createUri($uri) : $uri,
            new Headers($named, []),
            [],
            $server,
            $this->stream(''),
        );
        foreach (\array_diff_key($headers, $named) as $name => $values) {
            $request = $request->withHeader((string) $name, $values);
        }
        $host = $headers['host'] ?? [];

        // The constructor takes the host from the URI and drops its port.
        return $host === [] || $host === $request->getHeader('Host') ? $request : $request->withHeader('Host', $host);
    }

    public function stream(string $contents): StreamInterface
    {
        return $this->factories->stream($contents);
    }

    public function streamFromFile(string $path): StreamInterface
    {
        return $this->factories->streamFromFile($path);
    }

    public function file(File $file): UploadedFileInterface
    {
        $path = $file->error === \UPLOAD_ERR_OK ? $file->path() : '';

        return new UploadedFile($path, $file->name, $file->type, $file->size, $file->error);
    }
}
