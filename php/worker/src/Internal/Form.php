<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\File;

/**
 * A multipart form as the codec writes it, and what PHP would make of it. What stands here is what
 * PHP does between the parts and the names: it skips files whose names have unbalanced brackets,
 * obeys MAX_FILE_SIZE, drops folders.
 *
 * php.ini's limits for uploads do not count: the server has read the body already, and has limits
 * of its own.
 */
final class Form
{
    /** Bytes of an entry in the table. */
    private const ENTRY = 32;

    /**
     * @param list<array{string, string}> $fields names and values
     * @param list<array{string, array<string, string|int>}> $files names, and what `$_FILES` says about each
     */
    private function __construct(private readonly array $fields, private readonly array $files)
    {
    }

    public static function isUrlencoded(string $contentType): bool
    {
        $type = \substr($contentType, 0, \strcspn($contentType, ';, '));

        return \strtolower($type) === 'application/x-www-form-urlencoded';
    }

    /** @param list<array<string, string|int>> $entries as the server tells of a form */
    public static function encode(array $entries): string
    {
        $table = '';
        $strings = '';
        foreach ($entries as $entry) {
            $texts = [$entry['name'], $entry['value'], $entry['type'], $entry['path']];
            $lengths = \array_map('strlen', $texts);
            $table .= \pack('V6P', $entry['kind'], $entry['error'], ...[...$lengths, $entry['size']]);
            $strings .= \implode('', $texts);
        }

        return \pack('V', \count($entries)) . $table . $strings;
    }

    public static function decode(string $bytes): self
    {
        $fields = [];
        $files = [];
        $limit = 0;
        $broken = false;
        foreach (self::entries($bytes) as $entry) {
            if ($entry['kind'] === 0) {
                $fields[] = [$entry['name'], $entry['value']];
                if (\strcasecmp($entry['name'], 'MAX_FILE_SIZE') === 0) {
                    $limit = \preg_match('/^\s*[+-]?\d+/', $entry['value'], $digits) ? (int) $digits[0] : 0;
                }
                continue;
            }
            // For PHP a file's name ends at a NUL byte.
            $name = \substr($entry['name'], 0, \strcspn($entry['name'], "\0"));
            // PHP takes no file behind one whose name is broken.
            $broken = $broken || !self::isBalanced($name);
            if (!$broken) {
                $files[] = [\preg_replace('/\[[ \t\r\n]+/', '[', $name), self::upload($entry, $limit)];
            }
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

    /** @return list<string> where the files are */
    public function paths(): array
    {
        return \array_values(\array_filter(\array_map(static fn (array $file) => $file[1]['tmp_name'], $this->files)));
    }

    /**
     * A multipart body of the same parts: the server has kept no bytes of the client's. Fields come
     * before files.
     *
     * @return resource
     */
    public function body(string $contentType)
    {
        \preg_match('/\bboundary\s*=\s*(?:"([^"]*)"|([^;,\s]*))/i', $contentType, $found);
        $boundary = ($found[1] ?? '') . ($found[2] ?? '');
        // Beyond 2 MB it lies in a file, which goes with the stream.
        $body = \fopen('php://temp', 'w+b');
        $begin = static function (string $attributes) use ($body, $boundary): void {
            \fwrite($body, "--$boundary\r\nContent-Disposition: form-data; $attributes\r\n");
        };
        $quoted = static fn (string $text): string => '"' . \addcslashes($text, '"\\') . '"';
        foreach ($this->fields as [$name, $value]) {
            $begin('name=' . $quoted($name));
            \fwrite($body, "\r\n$value\r\n");
        }
        foreach ($this->files as [$name, $file]) {
            $begin('name=' . $quoted($name) . '; filename=' . $quoted($file['full_path']));
            \fwrite($body, ($file['type'] === '' ? '' : "Content-Type: $file[type]\r\n") . "\r\n");
            $content = $file['tmp_name'] === '' ? false : \fopen($file['tmp_name'], 'rb');
            if ($content !== false) {
                \stream_copy_to_stream($content, $body);
                \fclose($content);
            }
            \fwrite($body, "\r\n");
        }
        \fwrite($body, "--$boundary--\r\n");
        \rewind($body);

        return $body;
    }

    /**
     * PHP never repairs a file's name: brackets must be closed, and a closed one may only be
     * followed by an open one.
     */
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

    /**
     * @param array<string, string|int> $entry
     * @return array<string, string|int> the keys of one file in `$_FILES`
     */
    private static function upload(array $entry, int $limit): array
    {
        $fullPath = $entry['value'];
        $error = match (true) {
            $fullPath === '' => \UPLOAD_ERR_NO_FILE,
            $entry['error'] !== \UPLOAD_ERR_OK => $entry['error'],
            $limit !== 0 && $entry['size'] > \max(0, $limit) => \UPLOAD_ERR_FORM_SIZE,
            default => \UPLOAD_ERR_OK,
        };
        $complete = $error === \UPLOAD_ERR_OK;
        $slash = \strrpos(\strtr($fullPath, '\\', '/'), '/');

        return [
            'name' => $slash === false ? $fullPath : \substr($fullPath, $slash + 1),
            'full_path' => $fullPath,
            'type' => $complete ? \substr($entry['type'], 0, \strcspn($entry['type'], ';')) : '',
            'tmp_name' => $complete ? $entry['path'] : '',
            'error' => $error,
            'size' => $complete ? $entry['size'] : 0,
        ];
    }

    /** @return \Generator<array<string, string|int>> */
    private static function entries(string $bytes): \Generator
    {
        $count = \strlen($bytes) < 4 ? 0 : \unpack('V', $bytes)[1];
        $at = 4 + self::ENTRY * $count;
        if ($at > \strlen($bytes)) {
            throw new ProtocolError("a form of $count entries that its bytes cannot hold");
        }
        for ($number = 0; $number < $count; $number++) {
            $entry = \unpack('Vkind/Verror/Vname/Vvalue/Vtype/Vpath/Psize', $bytes, 4 + self::ENTRY * $number);
            foreach (['name', 'value', 'type', 'path'] as $string) {
                $length = $entry[$string];
                $entry[$string] = \substr($bytes, $at, $length);
                $at += $length;
            }
            yield $entry;
        }
        if ($at !== \strlen($bytes)) {
            throw new ProtocolError('a form whose strings do not end where it ends');
        }
    }

    /**
     * The numbers of the files, nested as their names say. PHP puts the attribute between name and
     * first bracket, so the depth of a name counts one more: here as well.
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
