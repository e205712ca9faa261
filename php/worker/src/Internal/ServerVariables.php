<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Request;

/**
 * What a script finds in `$_SERVER` of its request under nginx and php-fpm, as far as a worker can
 * know it.
 */
final class ServerVariables
{
    /**
     * As many names as a client can fill are enough: browsers send the same twenty again and again.
     */
    private const KEYS = 200;

    /**
     * @var array<array-key, string> names of headers as `$_SERVER` has them; two have no HTTP_ in
     *     front
     */
    private static array $keys = ['content-type' => 'CONTENT_TYPE', 'content-length' => 'CONTENT_LENGTH'];

    /**
     * @param int $startedAt microseconds since the Unix epoch
     * @return array<string, string|int|float>
     */
    public static function of(Request $request, int $startedAt): array
    {
        $secure = \str_starts_with($request->uri, 'https:');
        [$host, $port] = self::address($request->headers['host'][0] ?? '');
        $server = [
            'REQUEST_METHOD' => $request->method,
            'REQUEST_URI' => $request->target(),
            'QUERY_STRING' => $request->queryString,
            'SERVER_PROTOCOL' => $request->protocol,
            'SERVER_NAME' => $host,
            'SERVER_PORT' => $port ?: ($secure ? '443' : '80'),
            'REQUEST_SCHEME' => $secure ? 'https' : 'http',
            'REMOTE_ADDR' => $request->remoteAddress,
            'REQUEST_TIME' => \intdiv($startedAt, 1_000_000),
            'REQUEST_TIME_FLOAT' => $startedAt / 1e6,
        ];
        if ($secure) {
            $server['HTTPS'] = 'on';
        }
        $user = $request->attributes['remote_user'] ?? null;
        if ($user !== null) {
            // The server has verified it.
            $server['REMOTE_USER'] = $user;
            $server['AUTH_TYPE'] = 'Basic';
        }
        foreach ($request->attributes as $name => $value) {
            if (\str_starts_with((string) $name, 'SSL_CLIENT_')) {
                $server[$name] = $value;
            }
        }

        return $server + self::fields($request->headers);
    }

    /**
     * @param array<array-key, list<string>> $headers
     * @return array<string, string>
     */
    private static function fields(array $headers): array
    {
        $fields = [];
        foreach ($headers as $name => $values) {
            $key = self::$keys[$name] ?? self::key((string) $name);
            if ($key !== null) {
                $fields[$key] = isset($values[1]) ? \implode($name === 'cookie' ? '; ' : ', ', $values) : $values[0];
            }
        }

        return $fields;
    }

    /** @return array{string, string} host and port of a `Host` header, the port may be empty */
    private static function address(string $host): array
    {
        $colon = \strrpos($host, ':');

        return $colon === false || \str_ends_with($host, ']')
            ? [$host, '']
            : [\substr($host, 0, $colon), \substr($host, $colon + 1)];
    }

    /**
     * Null: nginx passes no others on, and programs take `HTTP_PROXY` for a proxy of their own
     * (CVE-2016-5385).
     */
    private static function key(string $name): ?string
    {
        if ($name === 'proxy' || \preg_match('/^[0-9a-z-]+$/D', $name) !== 1) {
            return null;
        }
        $key = 'HTTP_' . \strtoupper(\strtr($name, '-', '_'));
        if (\count(self::$keys) < self::KEYS) {
            self::$keys[$name] = $key;
        }

        return $key;
    }
}
