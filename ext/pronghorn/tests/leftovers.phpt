--TEST--
Where functions were called that have no effect in a worker, or start a session
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
session.save_path=
--FILE--
<?php
require __DIR__ . '/common.inc';

use function Pronghorn\Internal\places_seen;

class Mailer
{
    public static function answer(): void
    {
        array_map(http_response_code(...), [404, 404]);
    }
}

ob_start(fn () => '');
$show = function (): void {
    foreach (places_seen() as [$function, $file, $line]) {
        fwrite(STDOUT, "$function " . basename($file) . ":$line\n");
    }
    fwrite(STDOUT, "--\n");
};
header('X-Before: nobody looks yet');
$show();
[$box, $ring] = attached();
header('X-A: 1');
header('X-A: 2'); header('X-A: 3');
setcookie('a', 'b');
header_remove('X-A');
header_remove();
http_response_code();
http_response_code(200);
Mailer::answer();
$show();
$show();
session_start();
session_write_close();
for ($i = 0; $i < 3; $i++) {
    header("X-$i: 1");
}
eval(str_repeat("header('X-B: 1');\n", 20));
$seen = places_seen();
fwrite(STDOUT, implode(' ', array_column(array_slice($seen, 0, 2), 0)) . ', all in all ' . count($seen) . "\n");
header('X-Last: at the end of the script');
?>
--EXPECT--
--
header leftovers.php:24
header leftovers.php:25
setcookie leftovers.php:26
http_response_code leftovers.php:10
--
--
session_start header, all in all 16
