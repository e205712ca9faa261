<?php

// Lays the pages out as mdBook reads them: php scripts/site/stage.php OUT
//
// docs/README.md names every page: its sections become the menu. A page links to files of the
// repository; in OUT each link leads to a page, or to a copy of the file as text.

declare(strict_types=1);

namespace Pronghorn\Site;

require __DIR__ . '/markdown.php';

const INDEX = 'docs/README.md';
const START = 'docs/start.md';
// A browser shows these by themselves; all other files become text.
const SHOWN = ['html', 'json', 'png', 'svg', 'txt'];

chdir(dirname(__DIR__, 2));
$out = $argv[1] ?? '';
if ($out === '') {
    fwrite(STDERR, "usage: php scripts/site/stage.php OUT\n");
    exit(1);
}
$wrong = [];
$menu = menu(INDEX, $wrong);
$pages = [INDEX => 'All pages'];
foreach ($menu as [, $file, $title]) {
    $file === '' || $pages[$file] = $title;
}
foreach (below('docs') as $file) {
    if (str_ends_with($file, '.md') && ! isset($pages[$file])) {
        $list = dirname($file) . '/README.md';
        $list = isset($pages[$list]) && $list !== INDEX ? "$list or " . INDEX : INDEX;
        $wrong[] = "$file: is in no list: add a link to $list";
    }
}

$copies = [];
foreach (array_keys($pages) as $file) {
    $text = is_dir($file) ? example($file) : page($file, $pages, $copies, $wrong);
    put(place($file), $text);
}
if ($wrong !== []) {
    fwrite(STDERR, implode("\n", array_unique($wrong)) . "\n");
    exit(1);
}
foreach (array_keys($copies) as $file) {
    put(place($file), file_get_contents($file));
}
$summary = "# Summary\n\n";
foreach ($menu as [$depth, $file, $title]) {
    if ($file === '') {
        $summary .= "\n# $title\n\n";
        continue;
    }
    $item = '[' . addcslashes($title, '[]<>*_') . '](' . place($file) . ')';
    $summary .= $depth < 0 ? "$item\n" : str_repeat('  ', $depth) . "- $item\n";
}
// Pages before the first section have no list of their own.
$summary = preg_replace('/\n\n# /', "\n[All pages](" . place(INDEX) . ")\n\n# ", $summary, 1);
put('SUMMARY.md', $summary);
echo count($pages), ' pages, ', count($copies), " files\n";

/**
 * The links of a list of pages in their order: depth, file and title; a section has no file. A list
 * within the list (README.md of a directory of docs) brings its own pages.
 *
 * @return list<array{int, string, string}>
 */
function menu(string $list, array &$wrong, int $depth = -1): array
{
    $text = file_get_contents($list);
    $prose = prose($text);
    $menu = [];
    $sectionOrLink = '/^## +(.+)$|\[((?:[^\[\]]|\n)*)\]\(([^()\s]+)\)/m';
    preg_match_all($sectionOrLink, $prose, $matches, PREG_SET_ORDER | PREG_OFFSET_CAPTURE);
    foreach ($matches as $match) {
        if (! isset($match[3])) {
            if ($list === INDEX) {
                $depth = 0;
                $menu[] = [0, '', plain($match[1][0])];
            }
            continue;
        }
        // The blanks of code spans are not in the title.
        $title = plain(substr($text, $match[2][1], strlen($match[2][0])));
        $title = preg_replace('/\s+/', ' ', $title);
        $file = normal(dirname($list) . '/' . $match[3][0]);
        if (str_contains($match[3][0], ':') || $file === null || str_contains($file, '#')) {
            continue;
        }
        if (! file_exists($file)) {
            $wrong[] = "$list:" . lineOf($text, $match[0][1]) . ": {$match[3][0]}: no such file";
            continue;
        }
        if ($list !== INDEX) {
            // A list below has links to pages that stand elsewhere, and numbers for titles.
            if (dirname($file) !== dirname($list) || $file === $list) {
                continue;
            }
            $title = headings(file_get_contents($file))[0] ?? $title;
        }
        $menu[] = [$depth, $file, $title];
        if ($list === INDEX && preg_match('~^docs/.+/README\.md$~', $file)) {
            array_push($menu, ...menu($file, $wrong, $depth + 1));
        }
    }

    return $menu;
}

/** Where a file of the repository lies in the site's sources. */
function place(string $file): string
{
    if ($file === START) {
        return 'index.md';
    }
    if ($file === 'README.md') {
        return 'about.md';
    }
    if (is_dir($file)) {
        return "$file/index.md";
    }
    if ($file === INDEX) {
        return 'pages.md';
    }
    $place = preg_replace(['~^docs/~', '~README\.md$~'], ['', 'index.md'], $file);
    $ending = pathinfo($place, PATHINFO_EXTENSION);
    if ($ending === 'md') {
        return dirname($file) === '.' ? strtolower($place) : $place;
    }

    return in_array($ending, SHOWN, true) ? "files/$place" : "files/$place.txt";
}

/** A page with links as they are in the site, and fences that name a language alone. */
function page(string $file, array $pages, array &$copies, array &$wrong): string
{
    $page = file_get_contents($file);
    foreach (array_reverse(targets($page)) as [$target, $offset]) {
        if (preg_match('/^([a-z][a-z0-9+.-]*:|#)/i', $target)) {
            continue;
        }
        [$path, $anchor] = explode('#', $target, 2) + [1 => ''];
        $to = normal(dirname($file) . "/$path");
        $here = "$file:" . lineOf($page, $offset) . ": $target";
        if ($to === null || ! file_exists($to)) {
            $wrong[] = "$here: no such file";
            continue;
        }
        $place = isset($pages[$to]) ? place($to) : null;
        $of = preg_match('~^(examples/[^/]+)/(.+)$~', $to, $match) ? $match[1] : '';
        if ($place === null && isset($pages[$of])) {
            $place = place($of);
            $anchor = strtr(strtolower($match[2]), ['/' => '', '.' => '']);
        } elseif ($place === null && (is_dir($to) || str_ends_with($to, '.md'))) {
            $wrong[] = "$here: is no page: add a link to " . INDEX;
            continue;
        } elseif ($place === null) {
            $copies[$to] = true;
            $place = place($to);
        }
        $link = between(place($file), $place) . ($anchor === '' ? '' : "#$anchor");
        $page = substr_replace($page, $link, $offset, strlen($target));
    }

    // What follows the language is for the tests, but for a file's name.
    $named = '/^(`{3,}|~{3,})([a-z]+) (?:.*\s)?file=(\S+).*$/m';
    $page = preg_replace($named, "\n<div class=\"file\">$3</div>\n\n$1$2", $page);

    return preg_replace('/^([ >]*(?:`{3,}|~{3,})[a-z]+) [^`\n]*$/m', '$1', $page);
}

/** The files of an example, one after another. */
function example(string $dir): string
{
    $page = "# $dir\n";
    foreach (below($dir) as $file) {
        if (basename($file) === '.gitignore') {
            continue;
        }
        $text = file_get_contents($file);
        $ending = pathinfo($file, PATHINFO_EXTENSION);
        $language = ['sh' => 'sh', 'rs' => 'rust', 'yml' => 'yaml'][$ending] ?? $ending;
        if ($ending === '') {
            $language = preg_match('/^#!.*\b(php|sh|bash)/', $text, $match) ? $match[1] : 'text';
        }
        preg_match_all('/`{3,}/', $text, $ticks);
        $fence = str_repeat('`', 1 + max([2, ...array_map(strlen(...), $ticks[0])]));
        $name = substr($file, strlen($dir) + 1);
        $page .= "\n## $name\n\n$fence$language\n" . rtrim($text) . "\n$fence\n";
    }

    return $page;
}

/** @return list<string> files that belong to the repository, or will */
function below(string $dir): array
{
    exec('git ls-files -co --exclude-standard ' . escapeshellarg($dir), $files, $code);
    $code === 0 || exit(1);

    return array_values(array_filter($files, is_file(...)));
}

/** The way from one page to another. */
function between(string $from, string $to): string
{
    $up = substr_count($from, '/');

    return str_repeat('../', $up) . $to;
}

function put(string $place, string $text): void
{
    global $out;
    is_dir(dirname("$out/$place")) || mkdir(dirname("$out/$place"), 0777, true);
    file_put_contents("$out/$place", $text);
}
