<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Call;
use Pronghorn\File;
use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\Exchange;
use Pronghorn\Request;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\UploadedFileInterface;

/** PSR-7 requests from ours. */
final class Messages
{
    private const VERSIONS = ['HTTP/1.0' => '1.0', 'HTTP/1.1' => '1.1', 'HTTP/2.0' => '2', 'HTTP/3.0' => '3'];

    private ?Library $library = null;

    /** @param list<object> $factories PSR-17 factories of the application; those that are missing are looked for */
    public function __construct(private readonly array $factories)
    {
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
    }

    public function request(Exchange $exchange): ServerRequestInterface
    {
        $library = $this->library ??= Libraries::find($this->factories, ServerRequestInterface::class);
        $request = $exchange->request;
        $message = $this->head($library, $request, $exchange->startedAt);
        if ($request->queryString !== '') {
            $message = $message->withQueryParams($request->query());
        }
        if (isset($request->headers['cookie'])) {
            $message = $message->withCookieParams($request->cookies);
        }
        if ($request->hasBody() || isset($request->headers['content-type'])) {
            $message = $this->body($library, $request, $message);
        }
        foreach ($request->attributes as $name => $value) {
            $message = $message->withAttribute((string) $name, $value);
        }

        return $message->withAttribute(Call::class, $exchange->call());
    }

    private function head(Library $library, Request $request, int $startedAt): ServerRequestInterface
    {
        $version = self::VERSIONS[$request->protocol];
        $server = ServerParams::of($request, $startedAt);
        try {
            return $library->request($request->method, $request->uri, $request->headers, $version, $server);
        } catch (\InvalidArgumentException) {
            // A URI that is right for HTTP and wrong for the library, e.g. without a host in HTTP/1.0.
            $message = $library->request($request->method, '/', $request->headers, $version, $server);
            $uri = $message->getUri()->withPath($request->path)->withQuery($request->queryString);

            return $message->withUri($uri, true);
        }
    }

    private function body(Library $library, Request $request, ServerRequestInterface $message): ServerRequestInterface
    {
        if ($request->isForm()) {
            $message = $message->withParsedBody($request->form());
            $files = self::files($library, $request->files());
            if ($files !== []) {
                $message = $message->withUploadedFiles($files);
            }
        }
        $reader = $request->bodyReader();
        if ($reader !== null) {
            $size = $request->header('content-length');

            return $message->withBody(new RequestStream($reader, $size === null ? null : (int) $size));
        }
        $path = $request->bodyFile();
        if ($path !== null) {
            return $message->withBody($library->streamFromFile($path));
        }
        $body = $request->body();

        return $body === '' ? $message : $message->withBody($library->stream($body));
    }

    /**
     * @param array<array-key, File|array<mixed>> $files
     * @return array<array-key, UploadedFileInterface|array<mixed>>
     */
    private static function files(Library $library, array $files): array
    {
        return \array_map(
            static fn (File|array $file) => \is_array($file) ? self::files($library, $file) : $library->file($file),
            $files,
        );
    }
}
