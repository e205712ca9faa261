<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\File;

/** The parts of a request that a test makes. */
final class MadeRequest
{
    private const JSON = \JSON_THROW_ON_ERROR | \JSON_PRESERVE_ZERO_FRACTION;

    /**
     * @param array<lowercase-string, list<string>> $headers
     * @param bool $isForm the payload is a form that was taken apart
     */
    private function __construct(
        public readonly string $scheme,
        public readonly string $host,
        public readonly string $path,
        public readonly string $query,
        public readonly array $headers,
        public readonly string $payload,
        public readonly bool $isForm,
    ) {
    }

    /**
     * @param array<string, string|list<string>> $headers
     * @param array<array-key, mixed> $form
     * @param array<array-key, File|array<mixed>> $files
     * @param array<string, string> $cookies
     * @throws \ValueError
     */
    public static function of(
        string $target,
        array $headers,
        string $body,
        mixed $json,
        array $form,
        array $files,
        array $cookies,
    ): self {
        $pattern = '#^(?:(https?)://([^/?\#]+))?(/[^?\#]*)?(?:\?([^\#]*))?$#D';
        if (!\preg_match($pattern, $target, $parts, \PREG_UNMATCHED_AS_NULL)) {
            throw new \ValueError("`$target` is no target: write `/path?query`, or `https://host/path`.");
        }
        [, $scheme, $host, $path, $query] = $parts + [null, null, null, null, null];
        $named = self::headers($headers, $cookies);
        [$type, $payload, $isForm] = self::body($body, $json, $form, $files);
        if ($type !== null) {
            $named += ['content-type' => [$type]];
        }
        if ($payload !== '' && !$isForm) {
            $named += ['content-length' => [(string) \strlen($payload)]];
        }
        $host ??= $named['host'][0] ?? 'localhost';
        $named = ['host' => [$host]] + $named;

        return new self($scheme ?? 'http', $host, $path ?? '/', $query ?? '', $named, $payload, $isForm);
    }

    /**
     * @param array<array-key, mixed> $form
     * @param array<array-key, File|array<mixed>> $files
     * @return array{?string, string, bool} its type, what stands behind the head, and whether that
     *     is a form that was taken apart
     */
    private static function body(string $body, mixed $json, array $form, array $files): array
    {
        if (($body !== '') + ($json !== null) + ($form !== [] || $files !== []) > 1) {
            throw new \ValueError('A request has one body: `body`, `json`, or `form` and `files`.');
        }

        return match (true) {
            $files !== [] => ['multipart/form-data; boundary=made', Form::encode(self::entries($form, $files)), true],
            $form !== [] => ['application/x-www-form-urlencoded', \http_build_query($form), false],
            $json !== null => ['application/json', \json_encode($json, self::JSON), false],
            default => [null, $body, false],
        };
    }

    /**
     * @param array<string, string|list<string>> $headers
     * @param array<string, string> $cookies
     * @return array<lowercase-string, list<string>>
     */
    private static function headers(array $headers, array $cookies): array
    {
        $named = [];
        foreach ($headers as $name => $values) {
            $values = \is_array($values) ? \array_values($values) : [$values];
            if (\preg_match('/[\0\r\n]/', $name . \implode($values))) {
                throw new \ValueError('A header of a request holds no line end and no NUL byte.');
            }
            $named[\strtolower((string) $name)] = \array_map('strval', $values);
        }
        if ($cookies !== []) {
            $pairs = \array_map(
                static fn (int|string $name, string $value): string => "$name=" . \rawurlencode($value),
                \array_keys($cookies),
                $cookies,
            );
            $named['cookie'] = [\implode('; ', [...$named['cookie'] ?? [], ...$pairs])];
        }

        return $named;
    }

    /**
     * @param array<array-key, mixed> $form
     * @param array<array-key, File|array<mixed>> $files
     * @return list<array<string, string|int>>
     */
    private static function entries(array $form, array $files): array
    {
        $entries = [];
        foreach (self::leaves($form) as $name => $value) {
            $value = (string) $value;
            $size = \strlen($value);
            $entries[] = ['kind' => 0, 'error' => 0, 'name' => $name, 'value' => $value, 'type' => '', 'path' => '',
                'size' => $size];
        }
        foreach (self::leaves($files) as $name => $file) {
            $entries[] = $file->entry($name);
        }

        return $entries;
    }

    /**
     * @param array<array-key, mixed> $tree
     * @return array<string, mixed> by names as `album[cover]`
     */
    private static function leaves(array $tree, string $under = ''): array
    {
        $leaves = [];
        foreach ($tree as $key => $value) {
            $name = $under === '' ? (string) $key : "{$under}[$key]";
            $leaves += \is_array($value) ? self::leaves($value, $name) : [$name => $value];
        }

        return $leaves;
    }
}
