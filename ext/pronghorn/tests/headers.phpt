--TEST--
Headers by name: several values, numbers for names, empty ones, a count that is wrong
--EXTENSIONS--
pronghorn
--FILE--
<?php
use function Pronghorn\Internal\native_headers;

echo json_encode(native_headers(null, '', 0)), "\n";
echo json_encode(native_headers(null, 'h:1', 0)), "\n";
echo json_encode(native_headers("accept\0*/*\0cookie\0a=1\0cookie\0b=2\0x-own\0", 'h', 4)), "\n";
echo json_encode(native_headers("7\0seven\0host\0another", 'h', 2)), "\n";
echo json_encode(native_headers("\0", '', 1)), "\n";
foreach ([[null, 1], ["a\0b", 0], ["a\0b", 2], ['a', 1], ["a\0b\0c", 1], ["a\0b", -1], ["a\0b", 65536]] as [$fields, $count]) {
    echo json_encode(native_headers($fields, 'h', $count)), ' ';
}
// Names that come again and again are one string for all requests.
$name = fn () => array_key_last(native_headers("accept-language\0de", 'h', 1));
debug_zval_refcount($name());
function debug_zval_refcount(string $known): void
{
    ob_start();
    debug_zval_dump($known);
    echo preg_match('/interned|refcount\(1\)/', ob_get_clean()), "\n";
}
?>
--EXPECT--
[]
{"host":["h:1"]}
{"host":["h"],"accept":["*\/*"],"cookie":["a=1","b=2"],"x-own":[""]}
{"host":["h","another"],"7":["seven"]}
{"":[""]}
null null null null null null null 1
