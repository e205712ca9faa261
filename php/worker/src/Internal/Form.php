<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\File;

/**
 * A multipart form as the codec writes it, and what PHP would make of it. What stands here is what PHP does between the
 * parts and the names: it skips files whose names have unbalanced brackets, obeys MAX_FILE_SIZE, drops folders.
 *
 * php.ini's limits for uploads do not count: the server has read the body already, and has limits of its own.
 */
final class Form
{
    /** Bytes of an entry in the table. */
    private const ENTRY = 32;

    /** @param list<array{string, array<string, string|int>}> $files names, and what `$_FILES` says about each */
    private function __construct(private readonly array $fields, private readonly array $files)
    {
    }

    public static function isUrlencoded(string $contentType): bool
    {
        return \strtolower(\substr($contentType, 0, \strcspn($contentType, ';, '))) === 'application/x-www-form-urlencoded';
    }

    public static function decode(string $bytes): self
    {
        if (\strlen($bytes) < 4) {
            throw new ProtocolError('a form without its count of entries');
        }
        $count = \unpack('V', $bytes)[1];
        $at = 4 + self::ENTRY * $count;
        if ($at > \strlen($bytes)) {
            throw new ProtocolError("a form of $count entries that its bytes can't hold");
        }
        $fields = [];
        $files = [];
        $limit = 0;
        for ($entry = 0; $entry < $count; $entry++) {
            $e = \unpack('Vkind/Verror/Vname/Vvalue/Vtype/Vpath/Psize', $bytes, 4 + self::ENTRY * $entry);
            $end = $at + $e['name'] + $e['value'] + $e['type'] + $e['path'];
            if ($end > \strlen($bytes)) {
                throw new ProtocolError('a form whose strings leave its frame');
            }
            // For PHP a name ends at a NUL byte.
            $name = \substr($bytes, $at, \strcspn($bytes, "\0", $at, $e['name']));
            $value = \substr($bytes, $at += $e['name'], $e['value']);
            if ($e['kind'] === 0) {
                $fields[] = [$name, $value];
                if (\strcasecmp($name, 'MAX_FILE_SIZE') === 0) {
                    $limit = \preg_match('/^\s*[+-]?\d+/', $value, $digits) ? (int) $digits[0] : 0;
                }
            } elseif (self::isBalanced($name)) {
                $type = \substr($bytes, $at += $e['value'], $e['type']);
                $path = \substr($bytes, $at + $e['type'], $e['path']);
                $error = match (true) {
                    $value === '' => \UPLOAD_ERR_NO_FILE,
                    $e['error'] === \UPLOAD_ERR_OK && $limit !== 0 && $e['size'] > $limit => \UPLOAD_ERR_FORM_SIZE,
                    default => $e['error'],
                };
                $files[] = [$name, self::upload($value, $error, $type, $path, $e['size'])];
            }
            $at = $end;
        }
        if ($at !== \strlen($bytes)) {
            throw new ProtocolError('a form with bytes left over');
        }

        return new self($fields, $files);
    }

    /** @return array<array-key, string|array<mixed>> `$_POST` */
    public function post(): array
    {
        return Variables::ofPairs($this->fields);
    }

    /** @return array<array-key, File|array<mixed>> one tree instead of one per attribute */
    public function files(): array
    {
        $files = [];
        foreach ($this->tree() as $name => $numbers) {
            $files[$name] = self::map($numbers, fn (int $file) => File::uploaded($this->files[$file][1]));
        }

        return $files;
    }

    /** @return array<array-key, array<string, mixed>> `$_FILES` itself */
    public function uploads(): array
    {
        $uploads = [];
        foreach ($this->tree() as $name => $numbers) {
            foreach (['name', 'full_path', 'type', 'tmp_name', 'error', 'size'] as $attribute) {
                $uploads[$name][$attribute] = self::map($numbers, fn (int $file) => $this->files[$file][1][$attribute]);
            }
        }

        return $uploads;
    }

    /** PHP never repairs a file's name: brackets must be closed, and a closed one may only be followed by an open one. */
    private static function isBalanced(string $name): bool
    {
        $open = 0;
        for ($i = 0; $i < \strlen($name); $i++) {
            if ($name[$i] === '[') {
                $open++;
            } elseif ($name[$i] === ']' && (--$open < 0 || ($name[$i + 1] ?? '[') !== '[')) {
                return false;
            }
        }

        return $open === 0;
    }

    /** @return array<string, string|int> */
    private static function upload(string $fullPath, int $error, string $type, string $path, int $size): array
    {
        $slash = \strrpos(\strtr($fullPath, '\\', '/'), '/');
        $complete = $error === \UPLOAD_ERR_OK;

        return [
            'name' => $slash === false ? $fullPath : \substr($fullPath, $slash + 1),
            'full_path' => $fullPath,
            'type' => $complete ? \substr($type, 0, \strcspn($type, ';')) : '',
            'tmp_name' => $complete ? $path : '',
            'error' => $error,
            'size' => $complete ? $size : 0,
        ];
    }

    /**
     * The numbers of the files, nested as their names say. PHP puts the attribute between name and first bracket, so the
     * depth of a name counts one more: here as well.
     *
     * @return array<array-key, string|array<mixed>>
     */
    private function tree(): array
    {
        $pairs = [];
        foreach ($this->files as $number => [$name]) {
            $bracket = \str_ends_with($name, ']') ? (int) \strpos($name, '[') : \strlen($name);
            $pairs[] = [\substr($name, 0, $bracket) . '[name]' . \substr($name, $bracket), $number];
        }

        return \array_map(static fn (array $attributes) => $attributes['name'], Variables::ofPairs($pairs));
    }

    /**
     * @param string|array<mixed> $numbers
     * @return mixed the same tree with something else at its ends
     */
    private static function map(string|array $numbers, \Closure $leaf): mixed
    {
        return \is_array($numbers)
            ? \array_map(static fn (string|array $inner) => self::map($inner, $leaf), $numbers)
            : $leaf((int) $numbers);
    }
}
