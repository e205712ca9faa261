<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What an application puts into superglobals for a call is gone after it: cookies and names of
 * visitors.
 */
final class Superglobals
{
    /** Names of `$_SERVER`, beside those that begin with HTTP_, PHP_AUTH_, REDIRECT_ or SSL_. */
    private const OF_A_REQUEST = [
        'AUTH_TYPE' => 1, 'CONTENT_LENGTH' => 1, 'CONTENT_TYPE' => 1, 'DOCUMENT_URI' => 1, 'HTTPS' => 1,
        'ORIG_PATH_INFO' => 1, 'PATH_INFO' => 1, 'PATH_TRANSLATED' => 1, 'PHP_SELF' => 1, 'QUERY_STRING' => 1,
        'REMOTE_ADDR' => 1, 'REMOTE_HOST' => 1, 'REMOTE_IDENT' => 1, 'REMOTE_PORT' => 1, 'REMOTE_USER' => 1,
        'REQUEST_METHOD' => 1, 'REQUEST_SCHEME' => 1, 'REQUEST_TIME' => 1, 'REQUEST_TIME_FLOAT' => 1,
        'REQUEST_URI' => 1, 'SCRIPT_NAME' => 1, 'SERVER_ADDR' => 1, 'SERVER_NAME' => 1, 'SERVER_PORT' => 1,
        'SERVER_PROTOCOL' => 1,
    ];

    /** @var array<mixed> as they were before the first call */
    private readonly array $get;
    /** @var array<mixed> */
    private readonly array $post;
    /** @var array<mixed> */
    private readonly array $cookie;
    /** @var array<mixed> */
    private readonly array $files;
    /** @var array<mixed> */
    private readonly array $request;
    /** @var array<mixed> */
    private array $server;
    /**
     * @var array<mixed> what of it has such a name all the same, as HTTP_PROXY of the environment
     */
    private readonly array $named;

    public function __construct()
    {
        $this->get = $_GET;
        $this->post = $_POST;
        $this->cookie = $_COOKIE;
        $this->files = $_FILES;
        $this->request = $_REQUEST;
        $this->server = $_SERVER;
        $this->named = \array_filter($_SERVER, self::isOfARequest(...), \ARRAY_FILTER_USE_KEY);
    }

    /**
     * Afterwards they are the very arrays that are kept here: the extension tells by their places
     * in memory.
     */
    public function reset(): void
    {
        $this->putBack();
        if ($this->areChanged()) {
            // A destructor has put something there.
            $this->putBack();
        }
    }

    public function areChanged(): bool
    {
        $kept = [$this->get, $this->post, $this->cookie, $this->files, $this->request, $this->server];

        // A call may have unset them.
        $now = [$_GET ?? null, $_POST ?? null, $_COOKIE ?? null, $_FILES ?? null, $_REQUEST ?? null, $_SERVER ?? null];

        return $now !== $kept;
    }

    private function putBack(): void
    {
        $_GET = $this->get;
        $_POST = $this->post;
        $_COOKIE = $this->cookie;
        $_FILES = $this->files;
        $_REQUEST = $this->request;
        $now = $_SERVER ?? null;
        if (\is_array($now) && $now !== $this->server) {
            // An application may put settings of its own there at its first call, and rely on them.
            $ofRequests = \array_filter($now, self::isOfARequest(...), \ARRAY_FILTER_USE_KEY);
            $this->server = $this->named + \array_diff_key($now, $ofRequests);
        }
        $now = null;
        $_SERVER = $this->server;
    }

    private static function isOfARequest(int|string $name): bool
    {
        return isset(self::OF_A_REQUEST[$name])
            || \preg_match('/^(HTTP|PHP_AUTH|REDIRECT|SSL)_/', (string) $name) === 1;
    }
}
