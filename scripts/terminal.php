<?php

// Draws what a program wrote to a terminal as an SVG whose text is text:
// php scripts/terminal.php COMMAND < BYTES > PICTURE
//
// Knows colours of the foreground, bold and faint (SGR); other control sequences are dropped.

declare(strict_types=1);

const WIDTH = 7.4; // of a character in a font of 12 pixels, with what the widest of them need
const LINE = 18;
const MARGIN = 16;
const BAR = 30; // above the text, as of a window
// Read well on the dark ground of the terminal, which it has in both colour schemes.
const COLOURS = [31 => '#ff7b72', 32 => '#56d364', 33 => '#e3b341', 34 => '#79c0ff', 35 => '#d2a8ff', 36 => '#56d4dd'];

if (!isset($argv[1])) {
    \fwrite(STDERR, "usage: php scripts/terminal.php COMMAND < BYTES > PICTURE\n");
    exit(2);
}
echo picture($argv[1], \stream_get_contents(STDIN));

function picture(string $command, string $bytes): string
{
    $lines = \explode("\n", \rtrim(\str_replace("\r", '', $bytes)));
    $texts = [text(0, "<tspan class=\"faint\">$</tspan> <tspan class=\"bold\">" . escape($command) . '</tspan>')];
    $columns = 2 + \mb_strlen($command);
    foreach ($lines as $at => $line) {
        [$spans, $length] = spans($line);
        $texts[] = text($at + 1, $spans);
        $columns = \max($columns, $length);
    }
    $width = (int) \ceil($columns * WIDTH + 2 * MARGIN);
    $height = BAR + \count($texts) * LINE + MARGIN;
    [$inner, $tall] = [$width - 1, $height - 1];
    $dots = '';
    foreach ([20, 38, 56] as $x) {
        $dots .= "<circle class=\"dot\" cx=\"$x\" cy=\"17\" r=\"5\"/>";
    }
    $colours = '';
    foreach (COLOURS as $code => $colour) {
        $colours .= ".c$code{fill:$colour}";
    }
    $title = escape("A terminal: $command");
    $texts = \implode('', $texts);
    return <<<SVG
        <svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" viewBox="0 0 $width $height" role="img" aria-labelledby="t" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="12">
        <title id="t">$title</title>
        <style>
        .page{fill:#161b22;stroke:#444c56}.dot{fill:#444c56}text{fill:#e6edf3;white-space:pre}.faint{fill:#9198a1}.bold{font-weight:700}$colours
        </style>
        <rect class="page" x=".5" y=".5" width="{$inner}" height="{$tall}" rx="8"/>
        $dots
        $texts</svg>

        SVG;
}

function text(int $line, string $spans): string
{
    return '<text xml:space="preserve" x="' . MARGIN . '" y="' . BAR + ($line + 1) * LINE - 4 . "\">$spans</text>\n";
}

/** @return array{string, int} the line as spans, and how many characters it has */
function spans(string $line): array
{
    $spans = '';
    $length = 0;
    $classes = [];
    foreach (\preg_split('/(\e\[[0-9;?]*[a-zA-Z])/', $line, -1, PREG_SPLIT_DELIM_CAPTURE) as $part) {
        if (\preg_match('/^\e\[([0-9;]*)m$/', $part, $sgr)) {
            foreach (\explode(';', $sgr[1]) as $code) {
                $classes = match (true) {
                    (int) $code === 0 => [],
                    (int) $code === 1 => [...$classes, 'bold'],
                    (int) $code === 2 => [...$classes, 'faint'],
                    isset(COLOURS[(int) $code]) => [...$classes, 'c' . (int) $code],
                    default => $classes,
                };
            }
        } elseif ($part !== '' && $part[0] !== "\e") {
            $part = \str_replace("\t", '  ', $part);
            $length += \mb_strlen($part);
            $spans .= $classes === [] ? escape($part)
                : '<tspan class="' . \implode(' ', $classes) . '">' . escape($part) . '</tspan>';
        }
    }
    return [$spans, $length];
}

function escape(string $words): string
{
    return \htmlspecialchars($words, ENT_XML1);
}
