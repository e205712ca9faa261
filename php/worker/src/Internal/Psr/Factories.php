<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\File;
use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UploadedFileFactoryInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriInterface;

/** Any library, through its PSR-17 factories. */
final class Factories implements Library
{
    public function __construct(
        private readonly ServerRequestFactoryInterface $requests,
        private readonly StreamFactoryInterface $streams,
        private readonly UploadedFileFactoryInterface $files,
    ) {
    }

    public function requestClass(): string
    {
        return $this->requests->createServerRequest('GET', 'http://localhost/')::class;
    }

    public function request(
        string $method,
        string|UriInterface $uri,
        array $headers,
        string $version,
        array $server,
    ): ServerRequestInterface {
        $request = $this->requests->createServerRequest($method, $uri, $server);
        foreach ($headers as $name => $values) {
            $request = $request->withHeader((string) $name, $values);
        }
        // Some libraries don't know HTTP/3.
        try {
            return $request->getProtocolVersion() === $version ? $request : $request->withProtocolVersion($version);
        } catch (\InvalidArgumentException) {
            return $request;
        }
    }

    public function stream(string $contents): StreamInterface
    {
        $stream = $this->streams->createStream($contents);
        // Some leave it at its end, where getContents() finds nothing.
        $stream->rewind();

        return $stream;
    }

    public function streamFromFile(string $path): StreamInterface
    {
        return $this->streams->createStreamFromFile($path);
    }

    public function file(File $file): UploadedFileInterface
    {
        $content = $file->error === \UPLOAD_ERR_OK ? $this->streamFromFile($file->path()) : $this->stream('');

        return $this->files->createUploadedFile($content, $file->size, $file->error, $file->name, $file->type);
    }
}
