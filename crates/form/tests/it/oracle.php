<?php

/**
 * Says what PHP makes of forms, for comparison.
 *
 * Asked with a form, it prints what PHP itself put into $_POST and $_FILES. Asked with a body of
 * application/octet-stream, which holds form sections of the native codec, each behind its length,
 * it prints what $_POST and $_FILES become by PHP's rules for names when the server parsed the
 * form. Strings are in hexadecimal; of a file the content stands in place of its path.
 */

declare(strict_types=1);

/** @return list<string> per value: its keys and itself, in order */
function flat(array $values, string $keys = ''): array
{
    $lines = [];
    foreach ($values as $key => $value) {
        $key = $keys . '[' . \bin2hex((string) $key) . ']';
        $lines = [...$lines, ...\is_array($value) ? flat($value, $key) : [$key . '=' . \bin2hex((string) $value)]];
    }
    return $lines;
}

/** The paths in one of $_FILES' tmp_name trees, replaced by what the files hold. */
function contents(mixed $path): mixed
{
    if (\is_array($path)) {
        return \array_map(contents(...), $path);
    }
    return $path === '' ? '' : \file_get_contents($path);
}

function shown(array $post, array $files): array
{
    foreach ($files as &$file) {
        if (isset($file['tmp_name'])) {
            $file['tmp_name'] = contents($file['tmp_name']);
        }
    }
    return ['post' => flat($post), 'files' => flat($files)];
}

/**
 * @return list<array{int, int, int, string, string, string, string}> kind, error, size, name, text, type, path
 */
function entries(string $section): array
{
    $count = \unpack('V', $section)[1];
    $at = 4 + 32 * $count;
    $entries = [];
    for ($row = 0; $row < $count; ++$row) {
        [$kind, $error, $name, $text, $type, $path, $size] = \array_values(
            \unpack('Vkind/Verror/Vname/Vtext/Vtype/Vpath/Psize', \substr($section, 4 + 32 * $row, 32))
        );
        $entry = [$kind, $error, $size];
        foreach ([$name, $text, $type, $path] as $length) {
            $entry[] = \substr($section, $at, $length);
            $at += $length;
        }
        $entries[] = $entry;
    }
    return $entries;
}

function pair(string $name, string $value): string
{
    return \rawurlencode($name) . '=' . \rawurlencode($value);
}

/** PHP keeps no file whose name has brackets that are not closed, or text behind one that is. */
function isUsable(string $name): bool
{
    $open = 0;
    for ($at = 0; $at < \strlen($name); ++$at) {
        $open += ['[' => 1, ']' => -1][$name[$at]] ?? 0;
        if ($open < 0 || ($name[$at] === ']' && !\in_array($name[$at + 1] ?? '[', ['['], true))) {
            return false;
        }
    }
    return $open === 0;
}

function registered(string $section): array
{
    $fields = $files = [];
    $largest = 0;
    foreach (entries($section) as [$kind, $error, $size, $name, $text, $type, $path]) {
        if ($kind === 0) {
            $fields[] = pair($name, $text);
            if (\strcasecmp($name, 'MAX_FILE_SIZE') === 0) {
                $largest = (int) $text;
            }
            continue;
        }
        if (!isUsable($name)) {
            continue;
        }
        if ($largest !== 0 && $size > $largest) {
            [$error, $size, $type, $path] = [\UPLOAD_ERR_FORM_SIZE, 0, '', ''];
        }
        $bracket = \strpos($name, '[');
        [$base, $keys] = $bracket === false || !\str_ends_with($name, ']')
            ? [$name, '']
            : [\substr($name, 0, $bracket), \substr($name, $bracket)];
        $type = \explode(';', $type)[0];
        $baseName = \substr($text, (int) \max(\strrpos("/$text", '/'), \strrpos("\\$text", '\\')));
        $values = ['name' => $baseName, 'full_path' => $text, 'type' => $type, 'tmp_name' => $path,
            'error' => (string) $error, 'size' => (string) $size];
        foreach ($values as $key => $value) {
            $files[] = pair("{$base}[$key]$keys", $value);
        }
    }
    \parse_str(\implode('&', $fields), $post);
    \parse_str(\implode('&', $files), $uploads);
    return shown($post, $uploads);
}

if ($_SERVER['CONTENT_TYPE'] !== 'application/octet-stream') {
    echo \json_encode(shown($_POST, $_FILES));
    return;
}

$body = \file_get_contents('php://input');
$answers = [];
for ($at = 0; $at < \strlen($body); $at += 4 + $length) {
    $length = \unpack('V', $body, $at)[1];
    $answers[] = registered(\substr($body, $at + 4, $length));
}
echo \json_encode($answers);
