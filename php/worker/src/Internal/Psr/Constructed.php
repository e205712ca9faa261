<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\File;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriInterface;

/**
 * Nyholm's and Guzzle's library, whose constructors are the same and take everything at once. The
 * factories would make one object more for every header, and open every uploaded file.
 */
final class Constructed implements Library
{
    /**
     * @param class-string<ServerRequestInterface> $request
     * @param class-string<UploadedFileInterface> $file
     */
    public function __construct(
        private readonly string $request,
        private readonly string $file,
        private readonly Factories $factories,
    ) {
    }

    public function requestClass(): string
    {
        return $this->request;
    }

    public function request(
        string $method,
        string|UriInterface $uri,
        array $headers,
        string $version,
        array $server,
    ): ServerRequestInterface {
        return new $this->request($method, $uri, $headers, null, $version, $server);
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

        return new $this->file($path, $file->size, $file->error, $file->name, $file->type);
    }
}
