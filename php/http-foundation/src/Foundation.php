<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

use Pronghorn\Call;
use Pronghorn\File;
use Pronghorn\Request as Asked;
use Pronghorn\Response as Reply;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** Between Pronghorn's requests and replies and those of HttpFoundation. */
final class Foundation
{
    /** Longer bodies are read by whoever asks for them, and do not lie in memory before. */
    private const IN_MEMORY = 1024 * 1024;
    private const NO_FILE = ['name' => '', 'type' => '', 'tmp_name' => '', 'error' => \UPLOAD_ERR_NO_FILE, 'size' => 0];

    /**
     * What `Request::createFromGlobals()` would make of the same request.
     *
     * @param class-string<UploadedFile> $file what the framework makes of an uploaded file
     */
    public static function request(Asked $asked, string $file = UploadedFile::class): Request
    {
        $server = $asked->server();
        $isLong = (int) ($server['CONTENT_LENGTH'] ?? 0) > self::IN_MEMORY;

        return new Request(
            $asked->query(),
            $asked->form(),
            [],
            $asked->cookies,
            self::files($asked->files(), $file),
            $server,
            $isLong ? $asked->stream() : $asked->body(),
        );
    }

    /**
     * A handler of Pronghorn's requests, of one that takes and returns those of HttpFoundation.
     * What it returns may also be whatever else a handler returns.
     *
     * @param \Closure(Request): mixed $function
     * @return \Closure(Asked): mixed
     */
    public static function handler(\Closure $function): \Closure
    {
        return static function (Asked $asked) use ($function): mixed {
            $result = $function(self::request($asked));

            return $result instanceof Response ? self::reply($result) : $result;
        };
    }

    /**
     * Answers the call under way by a kernel that is kept: behind the reply, for which the client
     * waits no longer, it terminates and is made ready for the next request.
     *
     * @template T of Request
     * @param T $request
     * @param \Closure(T): Response $handle
     * @param \Closure(T, Response): mixed $terminate not called when there was no response
     * @param Renewal|\Closure(): mixed $renew called in any case; this process ends if it fails
     */
    public static function answer(
        Request $request,
        \Closure $handle,
        \Closure $terminate,
        Renewal|\Closure $renew,
    ): Reply {
        $response = null;
        $renewal = $renew instanceof Renewal ? $renew : new Renewal($renew);
        $renewal->begin(static function () use ($request, &$response, $terminate): void {
            $response === null || $terminate($request, $response);
        });
        Dumps::begin();
        $response = $handle($request);

        return self::reply($response);
    }

    /**
     * The reply that the server sends. A file is sent by the server, in the parts that the client
     * asked for; what a response echoes by a function is sent as it comes.
     */
    public static function reply(Response $response): Reply
    {
        $headers = self::headers($response);
        $status = $response->getStatusCode();
        if ($response instanceof BinaryFileResponse && self::canBeSent($response)) {
            // Which part the client asked for is seen by the server once more.
            $headers = \array_diff_key($headers, ['content-range' => 0, 'content-length' => 0, 'accept-ranges' => 0]);

            return Reply::file($response->getFile()->getPathname(), \array_column($headers, 1, 0));
        }
        $headers = \array_column($headers, 1, 0);
        $body = $response->getContent();
        if (\is_string($body)) {
            return new Reply($body, $status, $headers);
        }
        if ($response->isEmpty()) {
            return new Reply('', $status, $headers);
        }

        return Reply::stream(static fn (\Closure $send) => self::echoed($response, $send), $status, $headers);
    }

    /**
     * Names as the application wrote them, with their values.
     *
     * @return array<string, array{string, list<string>}> by the name in lower case
     */
    private static function headers(Response $response): array
    {
        $headers = [];
        foreach ($response->headers->allPreserveCaseWithoutCookies() as $name => $values) {
            $values = \array_filter($values, static fn (?string $value): bool => $value !== null);
            $headers[\strtolower((string) $name)] = [(string) $name, \array_values($values)];
        }
        $cookies = \array_map('strval', $response->headers->getCookies());
        if ($cookies !== []) {
            $headers['set-cookie'] = ['Set-Cookie', $cookies];
        }

        return $headers;
    }

    /**
     * Whether the server may take the file itself: all of it or the part of it that was asked for,
     * and not one that is to be deleted when it is sent, which only PHP can do.
     */
    private static function canBeSent(BinaryFileResponse $response): bool
    {
        $isDeleted = static fn (): bool => $response->deleteFileAfterSend ?? false;
        $isDeleted = \Closure::bind($isDeleted, null, BinaryFileResponse::class);
        $isTemporary = static fn (): bool => ($response->tempFileObject ?? null) !== null;
        $isTemporary = \Closure::bind($isTemporary, null, BinaryFileResponse::class);

        return \in_array($response->getStatusCode(), [200, 206], true) && !$isDeleted() && !$isTemporary()
            && $response->getFile()->isFile();
    }

    /**
     * Sends what the response's function echoes, as it comes. When the client leaves, the next
     * `echo` throws ClientGone, so that no loop goes on for nobody.
     */
    private static function echoed(Response $response, \Closure $send): void
    {
        $level = \ob_get_level();
        $isOver = false;
        $sent = static function (string $piece) use ($send, &$isOver): string {
            $isOver = $piece !== '';
            $piece === '' || $send($piece);
            $isOver = false;

            return '';
        };
        // PHP hands on what a buffer's function has thrown at: not into the log.
        \ob_start(static function (string $piece) use (&$isOver): string {
            return $isOver ? '' : $piece;
        });
        // Two, because an application may close one that it takes for PHP's own.
        \ob_start($sent, 1);
        \ob_start($sent, 1);
        try {
            $response->sendContent();
        } finally {
            // The worker closes those that refuse.
            while (\ob_get_level() > $level && @\ob_end_flush()) {
            }
        }
    }

    /**
     * @param array<array-key, File|array<mixed>> $files
     * @param class-string<UploadedFile> $class
     * @return array<array-key, UploadedFile|array<mixed>>
     */
    private static function files(array $files, string $class): array
    {
        return \array_map(static fn (File|array $file): UploadedFile|array => match (true) {
            \is_array($file) => self::files($file, $class),
            // As PHP has it: HttpFoundation makes null of it itself, and takes no null.
            $file->error === \UPLOAD_ERR_NO_FILE => self::NO_FILE,
            // The name with its folders, which HttpFoundation cuts off, and keeps from 7.1 on. The
            // last one: it did not come through PHP's own upload, and is a file that may be moved
            // all the same.
            $file->error === \UPLOAD_ERR_OK
                => new $class($file->path(), $file->fullPath, $file->type, $file->error, true),
            default => new $class('', $file->fullPath, $file->type, $file->error, true),
        }, $files);
    }
}
