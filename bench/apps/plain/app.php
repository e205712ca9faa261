<?php

// An application without a framework. Each path is one kind of work.

declare(strict_types=1);

require_once __DIR__ . '/../data.php';

const ROUTES = [
    '/' => 'hello',
    '/json' => 'person',
    '/page' => 'page',
    '/rows' => 'rows',
    '/post' => 'digest',
    '/64k' => 'long',
    '/1m' => 'longer',
    '/100m' => 'endless',
    '/sqlite' => 'item',
    '/slow' => 'slow',
    '/stall' => 'stall',
];

/**
 * @param array<array-key, mixed> $query
 * @param callable(): string $body the request's, read only where it is needed
 * @return array{int, string, string|iterable<string>} status, type and body, whole or in pieces
 */
function answer(string $path, array $query, callable $body): array
{
    return (ROUTES[$path] ?? 'missing')($query, $body);
}

function hello(): array
{
    return text('Hello World!');
}

function person(array $query): array
{
    return json([
        'name' => $query['name'] ?? 'nobody',
        'id' => 7,
        'height' => 1.75,
        'tags' => ['a', 'b'],
        'active' => true,
    ]);
}

/** A page of a template: texts in HTML. */
function page(array $query): array
{
    $escape = static fn (string $text): string => \htmlspecialchars($text, \ENT_QUOTES);
    $title = $escape($query['title'] ?? 'Page');
    $lines = '';
    foreach (['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'] as $name) {
        $link = '/items/' . \rawurlencode($name);
        $lines .= "<li class=\"line\"><a href=\"$link\">" . $escape("Item <$name>") . "</a></li>\n";
    }
    $page = <<<HTML
        <!doctype html>
        <html>
        <head><title>$title</title></head>
        <body>
        <h1>$title</h1>
        <ul>
        $lines</ul>
        </body>
        </html>
        HTML;

    return [200, 'text/html', $page];
}

/** 200 rows of a table, 20 KB. */
function rows(): array
{
    $row = static fn (int $id): array => [
        'id' => $id,
        'name' => "item $id",
        'digest' => \md5((string) $id),
        'price' => $id / 4,
        'tags' => ['red', 'green'],
    ];

    return json(\array_map($row, \range(1, 200)));
}

function digest(array $query, callable $body): array
{
    $body = $body();

    return text(\strlen($body) . ' ' . \md5($body));
}

/** 64 KB. */
function long(): array
{
    return text(\str_repeat("0123456789abcde\n", 4096));
}

/** 1 MB. */
function longer(): array
{
    return text(\str_repeat("0123456789abcde\n", 65536));
}

/** 100 MB, in pieces of 64 KB. */
function endless(): array
{
    $pieces = static function (): \Generator {
        $piece = \str_repeat("0123456789abcde\n", 4096);
        for ($count = 0; $count < 1600; $count++) {
            yield $piece;
        }
    };

    return [200, 'text/plain', $pieces()];
}

/**
 * One of a thousand rows by its key. A kept process has connected and prepared the query before.
 */
function item(array $query): array
{
    static $select = null;
    $select ??= (new \PDO('sqlite:' . database(data_folder('plain'), fill(...))))
        ->prepare('SELECT id, name, price FROM items WHERE id = ?');
    $select->execute([(int) ($query['id'] ?? 1)]);
    $row = $select->fetch(\PDO::FETCH_ASSOC);
    // Else the database would stay locked for reading.
    $select->closeCursor();

    return $row === false ? missing() : json($row);
}

function fill(\PDO $database): void
{
    $database->exec('CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL NOT NULL)');
    $insert = $database->prepare('INSERT INTO items VALUES (?, ?, ?)');
    for ($id = 1; $id <= 1000; $id++) {
        $insert->execute([$id, "item $id", $id / 4]);
    }
}

function slow(): array
{
    \usleep(10_000);

    return text('slow');
}

/**
 * Stands still for the first of every ten seconds, in all processes at once, as those do that wait
 * for a locked table. By the clock, so that it needs no memory of the request before.
 */
function stall(): array
{
    $into = \fmod(\microtime(true), 10);
    if ($into < 1) {
        \usleep((int) ((1 - $into) * 1e6));
    }

    return text('stall');
}

function missing(): array
{
    return text('Not found', 404);
}

function text(string $text, int $status = 200): array
{
    return [$status, 'text/plain', $text];
}

function json(mixed $value): array
{
    return [200, 'application/json', \json_encode($value, \JSON_THROW_ON_ERROR)];
}
