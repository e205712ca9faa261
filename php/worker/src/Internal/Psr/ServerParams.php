<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Request;

/** What `$_SERVER` says about a request under php-fpm, as far as a worker can know it. */
final class ServerParams
{
    /** Without HTTP_ in front, as CGI has it. */
    private const BARE = ['content-type' => 'CONTENT_TYPE', 'content-length' => 'CONTENT_LENGTH'];

    /**
     * @param int $startedAt microseconds since the Unix epoch
     * @return array<string, string|int|float>
     */
    public static function of(Request $request, int $startedAt): array
    {
        $secure = \str_starts_with($request->uri, 'https:');
        $host = $request->headers['host'][0] ?? '';
        $colon = \strrpos($host, ':');
        if ($colon === false || \str_ends_with($host, ']')) {
            $colon = \strlen($host);
        }
        $server = [
            'REQUEST_METHOD' => $request->method,
            'REQUEST_URI' => $request->target(),
            'QUERY_STRING' => $request->queryString,
            'SERVER_PROTOCOL' => $request->protocol,
            'SERVER_NAME' => \substr($host, 0, $colon),
            'SERVER_PORT' => \substr($host, $colon + 1) ?: ($secure ? '443' : '80'),
            'REQUEST_SCHEME' => $secure ? 'https' : 'http',
            'REMOTE_ADDR' => $request->remoteAddress,
            'REQUEST_TIME' => \intdiv($startedAt, 1_000_000),
            'REQUEST_TIME_FLOAT' => $startedAt / 1e6,
        ];
        if ($secure) {
            $server['HTTPS'] = 'on';
        }
        foreach ($request->headers as $name => $values) {
            $key = self::BARE[$name] ?? 'HTTP_' . \strtoupper(\strtr((string) $name, '-', '_'));
            $server[$key] = \implode($name === 'cookie' ? '; ' : ', ', $values);
        }
        // Programs take this one for their own proxy (CVE-2016-5385).
        unset($server['HTTP_PROXY']);

        return $server;
    }
}
