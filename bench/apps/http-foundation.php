<?php

// Between Pronghorn and frameworks that stand on Symfony's HttpFoundation.

declare(strict_types=1);

use Pronghorn\File;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/**
 * What Request::createFromGlobals() would make.
 *
 * @param class-string<UploadedFile> $file what the framework makes of an uploaded file
 */
function foundation_request(Pronghorn\Request $request, string $file = UploadedFile::class): Request
{
    return new Request(
        $request->query(),
        $request->form(),
        [],
        $request->cookies,
        foundation_files($request->files(), $file),
        $request->server(),
        $request->body(),
    );
}

function foundation_reply(Response $answer): Pronghorn\Response
{
    $headers = $answer->headers->allPreserveCaseWithoutCookies();
    foreach ($answer->headers->getCookies() as $cookie) {
        $headers['Set-Cookie'][] = (string) $cookie;
    }
    if ($answer instanceof BinaryFileResponse && $answer->getStatusCode() === 200) {
        return Pronghorn\Response::file($answer->getFile()->getPathname(), $headers);
    }
    $body = $answer->getContent();
    if ($body === false) {
        // It has a function that echoes.
        \ob_start();
        $answer->sendContent();
        $body = (string) \ob_get_clean();
    }

    return new Pronghorn\Response($body, $answer->getStatusCode(), $headers);
}

/**
 * @param array<array-key, File|array<mixed>> $files
 * @param class-string<UploadedFile> $class
 * @return array<array-key, UploadedFile|array<mixed>|null>
 */
function foundation_files(array $files, string $class): array
{
    return \array_map(static fn (File|array $file): UploadedFile|array|null => match (true) {
        \is_array($file) => foundation_files($file, $class),
        $file->error === \UPLOAD_ERR_NO_FILE => null,
        // The last one: it did not come through PHP's own upload, and is a file that may be moved
        // all the same.
        $file->error === \UPLOAD_ERR_OK => new $class($file->path(), $file->name, $file->type, $file->error, true),
        default => new $class('', $file->name, $file->type, $file->error, true),
    }, $files);
}
