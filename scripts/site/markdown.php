<?php

// As much of Markdown as links need. Offsets count bytes of the page.

declare(strict_types=1);

namespace Pronghorn\Site;

/** The page with blanks for all characters of fenced blocks, comments and, mostly, code spans. */
function prose(string $page, bool $withSpans = false): string
{
    $blank = static fn (array $match): string => preg_replace('/[^\n]/', ' ', $match[0]);
    $fenced = '/^[ >]*(`{3,}|~{3,})[^`\n]*\n(?:.*\n)*?[ >]*\1[`~]* *$/m';
    $page = preg_replace_callback($fenced, $blank, $page);
    $page = preg_replace_callback('/<!--.*?-->/s', $blank, $page);
    if (! $withSpans) {
        $span = '/(?<!`)(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)/s';
        $page = preg_replace_callback($span, $blank, $page);
    }

    return $page;
}

/**
 * What links, pictures and HTML of the page lead to, with the offset.
 *
 * @return list<array{string, int}>
 */
function targets(string $page): array
{
    $prose = prose($page);
    $found = [];
    $patterns = [
        '/\]\(\s*<?((?:[^()\s<>]|\([^()\s]*\))+)>?(?:\s+(?:"[^"]*"|\'[^\']*\'))?\s*\)/',
        '/^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)>?/m',
        '/<[a-z]+\s[^>]*?\b(?:href|src)="([^"]*)"/i',
    ];
    foreach ($patterns as $pattern) {
        preg_match_all($pattern, $prose, $matches, PREG_OFFSET_CAPTURE);
        array_push($found, ...$matches[1]);
    }
    usort($found, static fn (array $a, array $b): int => $a[1] <=> $b[1]);

    return $found;
}

/** Links and marks of a text become what a reader sees. */
function plain(string $text): string
{
    $text = preg_replace('/!?\[([^\]]*)\]\([^)]*\)/', '$1', trim($text));
    $parts = explode('`', $text);
    foreach ($parts as $i => $part) {
        // Marks within code are characters like others.
        if ($i % 2 === 0) {
            $parts[$i] = preg_replace('/(?<![\w])[*_]+|[*_]+(?![\w])|<!--.*?-->/', '', $part);
        }
    }

    return trim(implode('', $parts));
}

/** @return list<string> the text of each heading, in the order of the page */
function headings(string $page): array
{
    preg_match_all('/^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$/m', prose($page, true), $matches);

    return array_map(plain(...), $matches[1]);
}

/** @return array<string, true> the names of the page's headings, as GitHub makes them */
function anchors(string $page): array
{
    $anchors = [];
    foreach (headings($page) as $heading) {
        $name = preg_replace('/[^\p{L}\p{M}\p{N}\p{Pc} -]/u', '', lower($heading));
        $name = $unique = strtr($name, ' ', '-');
        for ($i = 1; isset($anchors[$unique]); $i++) {
            $unique = "$name-$i";
        }
        $anchors[$unique] = true;
    }
    preg_match_all('/<[a-z]+\s[^>]*?\b(?:id|name)="([^"]+)"/i', prose($page), $matches);

    return $anchors + array_fill_keys($matches[1], true);
}

/** php-cli alone has no mbstring; headings with other capital letters keep them. */
function lower(string $text): string
{
    return function_exists('mb_strtolower') ? mb_strtolower($text) : strtolower($text);
}

function lineOf(string $text, int $offset): int
{
    return 1 + substr_count($text, "\n", 0, $offset);
}

/** The path without `.` and `..`; null if it leaves the top. */
function normal(string $path): ?string
{
    $parts = [];
    foreach (explode('/', $path) as $part) {
        if ($part === '..') {
            if (array_pop($parts) === null) {
                return null;
            }
        } elseif ($part !== '' && $part !== '.') {
            $parts[] = $part;
        }
    }

    return implode('/', $parts);
}
