<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\File;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriInterface;

/** How requests, bodies and files are made with one PSR-7 library. */
interface Library
{
    /** @return class-string the class of its requests */
    public function requestClass(): string;

    /**
     * @param array<array-key, list<string>> $headers
     * @param array<string, mixed> $server
     */
    public function request(
        string $method,
        string|UriInterface $uri,
        array $headers,
        string $version,
        array $server,
    ): ServerRequestInterface;

    public function stream(string $contents): StreamInterface;

    public function streamFromFile(string $path): StreamInterface;

    public function file(File $file): UploadedFileInterface;
}
