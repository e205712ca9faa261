--TEST--
exit ends the function that until_exit() calls, and says where it was
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use function Pronghorn\Internal\until_exit;

function deep(int $depth): void
{
    try {
        $depth > 0 ? deep($depth - 1) : exit('said ');
    } finally {
        echo 'never';
    }
}

[$box, $ring] = attached();
$show = function (?array $place): void {
    echo $place === null ? 'returned' : basename($place[0]) . ':' . $place[1], "\n";
};
$show(until_exit(fn (int $a, int $b) => print($a + $b . ' '), 1, 2));
$show(until_exit(deep(...), 3));
$show(until_exit(function (): void {
    foreach ((function () {
        yield 1;
        exit(7);
    })() as $_) {
    }
}));
$show(until_exit(function (): void {
    array_map(fn () => exit, [1]);
}));
try {
    until_exit(fn () => throw new LogicException('thrown'));
} catch (LogicException $thrown) {
    echo $thrown->getMessage(), "\n";
}
register_shutdown_function(function (): void {
    echo "ended\n";
});
?>
--EXPECT--
3 returned
said exit.php:9
exit.php:24
exit.php:29
thrown
ended
