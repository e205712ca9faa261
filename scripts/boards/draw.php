<?php

// Draws a board of Grafana as an SVG: draw.php BOARD PROMETHEUS SECONDS > PICTURE
//
// Asks a Prometheus for each query of each panel, over the last SECONDS. A query that is refused,
// or that finds nothing, ends it with the name of the panel.

declare(strict_types=1);

const WIDTH = 1200;
const ROW = 30; // pixels of a unit of the board's grid, as in Grafana
const COLUMNS = 24; // of the grid
const GAP = 8;
const POINTS = 120; // of a line
const MOST_LINES = 10; // of a panel
// Of lines and words; each is read well on white and on black.
const COLORS = ['#3b82c4', '#d9822b', '#2f9e5b', '#c9464b', '#8a63c9', '#9a6b4f', '#d065a8', '#7a8288', '#a5a326', '#2aa5b8'];

exit(main($argv));

function main(array $argv): int
{
    [, $file, $prometheus, $seconds] = $argv;
    try {
        $board = \json_decode(\file_get_contents($file), true, flags: JSON_THROW_ON_ERROR);
        echo board($board, $prometheus, (int) $seconds);
    } catch (Wrong $wrong) {
        \fwrite(STDERR, "$file: {$wrong->getMessage()}\n");
        return 1;
    }
    return 0;
}

final class Wrong extends \RuntimeException
{
}

function board(array $board, string $prometheus, int $seconds): string
{
    $to = \time();
    $range = ['start' => $to - $seconds, 'end' => $to, 'step' => \max(1, \intdiv($seconds, POINTS))];
    $panels = '';
    $bottom = 0;
    foreach ($board['panels'] as $panel) {
        try {
            $lines = lines($panel, $prometheus, $range);
        } catch (Wrong $wrong) {
            throw new Wrong("panel `{$panel['title']}`: {$wrong->getMessage()}");
        }
        $panels .= panel($panel, $lines, $range);
        $bottom = \max($bottom, ($panel['gridPos']['y'] + $panel['gridPos']['h']) * ROW);
    }
    $height = $bottom + 44;
    $title = escape($board['title']);
    $colors = '';
    foreach (COLORS as $at => $color) {
        $colors .= ".l$at{stroke:$color}.k$at{fill:$color}";
    }
    return <<<SVG
        <svg xmlns="http://www.w3.org/2000/svg" width="1200" height="$height" viewBox="0 0 1200 $height" font-family="sans-serif" font-size="12">
        <title>$title</title>
        <style>
        .page{fill:#f4f5f5}.panel{fill:#fff;stroke:#e0e2e4}.grid{stroke:#e4e6e8}text{fill:#454a50}.name{font-size:14px;font-weight:600}
        path{fill:none;stroke-width:1.5}$colors
        @media (prefers-color-scheme:dark){.page{fill:#111217}.panel{fill:#181b1f;stroke:#2c3037}.grid{stroke:#2c3037}text{fill:#ccd0d6}}
        </style>
        <rect class="page" width="1200" height="$height"/>
        <text class="name" x="12" y="26">$title</text>
        <g transform="translate(0 40)">
        $panels</g>
        </svg>

        SVG;
}

/** @return array<string, array<int, float>> values by time, by the text of the legend */
function lines(array $panel, string $prometheus, array $range): array
{
    $lines = [];
    foreach ($panel['targets'] as $target) {
        // What Grafana puts in: all pools, and four times the interval of scrapes, which is 1 s.
        $query = \strtr($target['expr'], ['$pool' => '.*', '$__rate_interval' => '4s']);
        $found = ask("$prometheus/api/v1/query_range?" . \http_build_query(['query' => $query] + $range));
        if ($found === []) {
            throw new Wrong("nothing is found for `$query`");
        }
        foreach ($found as $series) {
            $name = \preg_replace_callback(
                '/{{(\w+)}}/',
                static fn (array $label): string => $series['metric'][$label[1]] ?? '',
                $target['legendFormat'],
            );
            foreach ($series['values'] as [$time, $value]) {
                $lines[$name][(int) $time] = (float) $value; // `NaN` becomes 0: nothing was there
            }
        }
    }
    return \array_slice($lines, 0, MOST_LINES, true);
}

function ask(string $url): array
{
    $context = \stream_context_create(['http' => ['ignore_errors' => true, 'timeout' => 30]]);
    $said = @\file_get_contents($url, false, $context);
    $answer = $said === false ? null : \json_decode($said, true);
    return match ($answer['status'] ?? null) {
        'success' => $answer['data']['result'],
        'error' => throw new Wrong($answer['error']),
        default => throw new Wrong("no answer from $url"),
    };
}

function panel(array $panel, array $lines, array $range): string
{
    ['x' => $x, 'y' => $y, 'w' => $w, 'h' => $h] = $panel['gridPos'];
    [$left, $top] = [$x * WIDTH / COLUMNS + GAP / 2, $y * ROW + GAP / 2];
    [$width, $height] = [$w * WIDTH / COLUMNS - GAP, $h * ROW - GAP];
    // The plot within it: below its title, beside the numbers, above times and legend.
    [$plotLeft, $plotTop, $plotWidth, $plotHeight] = [64, 34, $width - 80, $height - 88];
    $unit = $panel['fieldConfig']['defaults']['unit'];
    $step = step(\max(\array_map('max', $lines) ?: [0]), $unit);
    $most = 4 * $step;

    $out = "<g transform=\"translate($left $top)\">\n<rect class=\"panel\" width=\"$width\" height=\"$height\" rx=\"3\"/>\n";
    $out .= '<text class="name" x="12" y="22">' . escape($panel['title']) . "</text>\n";
    for ($tick = 0; $tick <= 4; $tick++) {
        $at = $plotTop + $plotHeight * (1 - $tick / 4);
        $out .= "<line class=\"grid\" x1=\"$plotLeft\" x2=\"" . $plotLeft + $plotWidth . "\" y1=\"$at\" y2=\"$at\"/>";
        $out .= '<text text-anchor="end" x="' . $plotLeft - 8 . '" y="' . $at + 4 . '">' . amount($tick * $step, $unit) . "</text>\n";
    }
    foreach ([0, 0.5, 1] as $part) {
        $ago = (int) (($range['end'] - $range['start']) * (1 - $part));
        $anchor = [0 => 'start', 50 => 'middle', 100 => 'end'][(int) (100 * $part)];
        $out .= "<text text-anchor=\"$anchor\" x=\"" . $plotLeft + $part * $plotWidth . '" y="' . $plotTop + $plotHeight + 18 . '">'
            . ($ago === 0 ? 'now' : "−$ago s") . "</text>\n";
    }
    $legend = 12.0;
    foreach (\array_keys($lines) as $at => $name) {
        $path = '';
        foreach ($lines[$name] as $time => $value) {
            $right = ($time - $range['start']) / ($range['end'] - $range['start']);
            $path .= ($path === '' ? 'M' : 'L') . \round($plotLeft + $right * $plotWidth, 1) . ' '
                . \round($plotTop + $plotHeight * (1 - $value / $most), 1);
        }
        $out .= "<path class=\"l$at\" d=\"$path\"/>\n";
        $wide = 24 + 7.4 * \mb_strlen((string) $name);
        if ($legend + $wide < $width) {
            $bottom = $height - 12;
            $out .= "<rect class=\"k$at\" x=\"$legend\" y=\"" . $bottom - 6 . '" width="10" height="3"/>'
                . '<text x="' . $legend + 14 . "\" y=\"$bottom\">" . escape((string) $name) . "</text>\n";
            $legend += $wide;
        }
    }
    return "$out</g>\n";
}

/** A quarter of what the plot shows: 1, 2 or 5 and zeros. In bytes, with powers of two. */
function step(float $most, string $unit): float
{
    $quarter = \max($most, 1e-9) / 4;
    if ($most <= 0) {
        return $unit === 's' ? 0.001 : 1;
    }
    if ($unit === 'bytes') {
        return 2 ** \ceil(\log($quarter, 2));
    }
    $power = 10 ** \floor(\log10($quarter));
    foreach ([1, 2, 2.5, 5, 10] as $factor) {
        if ($factor * $power >= $quarter) {
            return $factor * $power;
        }
    }
}

function amount(float $value, string $unit): string
{
    $short = static fn (float $value): string => (string) \round($value, 3);
    return match (true) {
        $value === 0.0 => '0',
        $unit === 's' && $value < 0.001 => $short($value * 1e6) . ' µs',
        $unit === 's' && $value < 1 => $short($value * 1e3) . ' ms',
        $unit === 's' => $short($value) . ' s',
        $unit === 'bytes' && $value >= 2 ** 30 => $short($value / 2 ** 30) . ' GiB',
        $unit === 'bytes' => $short($value / 2 ** 20) . ' MiB',
        $unit === 'percentunit' => $short(100 * $value) . ' %',
        $unit === 'reqps', $unit === 'ops' => $short($value) . ' /s',
        default => $short($value),
    };
}

function escape(string $text): string
{
    return \htmlspecialchars($text, ENT_XML1);
}
